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

// The tables have the attributes that a day shows, and no others. TestADay compares the rest.
func TestTheAttributesInTheTables(t *testing.T) {
	day, err := os.ReadFile("testdata/day.txt")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	shown, name := make(map[string][]string), ""
	for line := range strings.Lines(string(day)) {
		if !strings.HasPrefix(line, "\t") {
			name, _, _ = strings.Cut(line, " ")
			continue
		}
		for _, attr := range regexp.MustCompile(`([a-z._]+)=`).FindAllStringSubmatch(line, -1) {
			shown[name] = append(shown[name], attr[1])
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `(.*?)` \\|.*\\| (.*) \\|$").FindAllStringSubmatch(string(tables), -1)
	for _, row := range rows {
		listed := strings.Split(strings.ReplaceAll(row[2], "`", ""), ", ")
		slices.Sort(listed)
		slices.Sort(shown[row[1]])
		if got := slices.Compact(shown[row[1]]); !slices.Equal(got, listed) {
			t.Errorf("%s has the attributes %q; METRICS.md has %q", row[1], got, listed)
		}
	}
	if len(rows) != len(shownNames(string(day))) {
		t.Errorf("METRICS.md has %d metrics, and a day %d", len(rows), len(shownNames(string(day))))
	}
}

func shownNames(day string) []string {
	return regexp.MustCompile(`(?m)^ratelimit\.`).FindAllString(day, -1)
}
