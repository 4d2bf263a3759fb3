package otelratelimit_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A program that uses this package chooses its SDK. So nothing but the API of OpenTelemetry is compiled into it.
func TestOnlyTheAPIIsImported(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		for _, forbidden := range []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.opentelemetry.io/otel/metric/x", "github.com/redis/", "github.com/golang-jwt/", "html/template", "net/http/pprof"} {
			if strings.HasPrefix(dep, forbidden) {
				t.Errorf("depends on %s", dep)
			}
		}
	}
}

// The package comment lists all instruments, each with its kind, unit and attributes, and nothing else.
func TestTheTableOfInstruments(t *testing.T) {
	day, err := os.ReadFile("testdata/day.txt")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	attrs := make(map[string][]string)
	name := ""
	for line := range strings.Lines(string(day)) {
		if point, found := strings.CutPrefix(line, "\t"); found {
			for _, attr := range regexp.MustCompile(`[a-z._]+=`).FindAllString(point, -1) {
				if attr = strings.TrimSuffix(attr, "="); !slices.Contains(attrs[name], attr) && attr != "ratelimit.store" {
					attrs[name] = append(attrs[name], attr)
				}
			}
			continue
		}
		head, _, _ := strings.Cut(line, ": ")
		fields := strings.Fields(head)
		name = fields[0]
		kind := strings.Replace(fields[1], "updowncounter", "level", 1)
		want = append(want, name+" "+kind+" "+fields[len(fields)-1])
	}
	slices.Sort(want)

	var got []string
	for _, row := range regexp.MustCompile(`(?m)^//\t(ratelimit\.\S+) +(counter|level|gauge|histogram) +(\S+)(.*)$`).FindAllStringSubmatch(string(doc), -1) {
		got = append(got, strings.Join(row[1:4], " "))
		for _, attr := range attrs[row[1]] {
			if !strings.Contains(row[4], attr) {
				t.Errorf("the row of %s does not have its attribute %s", row[1], attr)
			}
		}
		for _, attr := range regexp.MustCompile(`(ratelimit|http|error)\.[a-z._]*[a-z]`).FindAllString(row[4], -1) {
			if !slices.Contains(attrs[row[1]], attr) {
				t.Errorf("the row of %s has an attribute %s", row[1], attr)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
