package policyfile_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// A file below 1 MiB takes bounded memory, whatever it says, and has at most 50 faults. Watch reads files in replicas that
// serve requests.
func TestHostileFilesTakeBoundedMemory(t *testing.T) {
	const size = 1<<20 - 100
	head := "version: 1\npolicies:\n- {name: a, key: remote_ip, limit: 1/s}\n"
	fill := func(text string) string { return strings.Repeat(text, size/len(text)-10) }
	numbered := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	tested := 0
	for name, text := range map[string]string{
		"60,000 patterns":              head + "routes: [" + numbered(60_000, "/a%d/,") + "]",
		"45,000 patterns":              head + "routes: [" + numbered(45_000, "/a%d/,") + "]",
		"1,900 patterns for all below": head + "routes: [" + numbered(1900, "/a%d/,") + "]",
		"1,900 patterns of chi":        head + "router: chi\nroutes: [" + numbered(1900, "'/{a:[a-z]{%d}}',") + "]",
		"patterns that conflict":       head + "routes: [" + numbered(1900, "'/a%d/{x}',") + numbered(100, "'/{x}/b%d',") + "]",
		"a million faults":             "version: 1\npolicies: [" + fill(",") + "]",
		"45,000 faults":                "version: 1\npolicies: [" + strings.Repeat("{},", 45_000) + "]",
		"45,000 policies":              "version: 1\npolicies: [" + numbered(11_000, "{name: a%d, key: route, limit: 1/s},") + "]",
		"names that are malformed":     "version: 1\npolicies: [" + numbered(11_000, "{name: ' %d', key: route, limit: 1/s},") + "]",
		"names that are removed":       head + "removed: [" + numbered(45_000, "b%d,") + "]",
		"unknown fields":               head + numbered(45_000, "b%d: 1\n"),
		"a repeated field":             head + fill("a: 1\n"),
		"pairs in a list":              head + "routes: [" + fill("a: b,") + "]",
		"pairs in a short list":        head + "routes: [" + strings.Repeat("a: b,", 45_000) + "]",
		"lists in lists":               head + strings.Repeat("- - - - - - - - - - - - - - - - - - - a\n", 24_000),
		"brackets":                     strings.Repeat("[", size),
		"dashes":                       fill("- "),
		"question marks":               fill("? "),
		"braces":                       fill("{a: "),
		"empty lists":                  "a: [" + fill("[]") + "]",
		"aliases":                      "a: &a [b]\nc: [" + strings.Repeat("*a,", 45_000) + "]",
		"aliases of aliases":           "a: &a [b,b,b,b,b,b,b]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c]\nversion: *d\npolicies: *d\n",
		"comments":                     fill("#\n"),
		"one long comment":             "#" + strings.Repeat("a", size),
		"one long name":                strings.Repeat("a", size) + ": 1",
		"a long text of faults":        head + "routes: ['" + strings.Repeat("x", size-200) + "']",
		"a text without an end":        "a: \"" + strings.Repeat("x", size),
		"tabs":                         "a:" + fill("\n\t"),
		"documents":                    fill("---\n"),
		"directives":                   fill("%TAG !a! b\n"),
		"escapes":                      "a: \"" + fill("\\x1b"),
		"networks":                     "version: 1\npolicies: [{name: a, limit: 1/s, key: {client_ip: {trusted_proxies: [" + strings.Repeat("10.0.0.0/8,", 45_000) + "]}}}]",
		"keys that are refused":        "version: 1\npolicies: [{name: a, limit: 1/s, key: {first_of: [" + strings.Repeat("{client_ip: {ipv6_bits: 9}},", 12_000) + "]}}]",
		"keys":                         "version: 1\npolicies: [{name: a, limit: 1/s, key: {first_of: [" + strings.Repeat("{client_ip: {ipv6_bits: 9}},", 30_000) + "]}}]",
	} {
		if tested++; tested > testsize.Of(4, 100) { // other ones each time
			break
		}
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"f.yaml", "f.json"} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := policyfile.Parse(file, []byte(text), registry)
				runtime.ReadMemStats(&after)
				if faults, _ := err.(policyfile.Faults); len(faults) > 50 || len(faults.Error()) > 50*1000 {
					t.Errorf("%d faults of %d bytes", len(faults), len(faults.Error()))
				}
				if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 256 {
					t.Errorf("%s: %d MiB were allocated", file, allocated)
				} else {
					t.Logf("%s: %d MiB: %.150v", file, allocated, err)
				}
			}
		})
	}
}

// FuzzParse finds no panic. Each fault has a line of the text, and nothing for a terminal. The limiter accepts the policies
// of a file without faults, and its handler serves.
func FuzzParse(f *testing.F) {
	for _, text := range []string{whole, wholeJSON, before, "", "version: 2", policies("key: {client_ip: {proxy_count: 2, header: Forwarded}}", "limit: 1/s", "on: ['/{x...}', 'GET /a']"),
		"version: 1\nrouter: chi\nroutes: ['/{a}/*']\npolicies: [{name: a, key: {join: [route, {header: X-A}]}, limit: 1/s, cost: x}]\nremoved: [b]\n"} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		name := "f.yaml"
		if isJSON {
			name = "f.json"
		}
		file, err := policyfile.Parse(name, []byte(text), registry)
		if err != nil {
			var faults policyfile.Faults
			if !errors.As(err, &faults) || len(faults) == 0 || len(faults) > 50 || file != nil {
				t.Fatalf("file %v, error %v", file, err)
			}
			lines := 1
			for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // which YAML has had
				lines += strings.Count(text, end)
			}
			for _, fault := range faults {
				if fault.File != name || fault.Line < 1 || fault.Line > lines || fault.Column < 1 || fault.Text == "" {
					t.Errorf("fault %+v of %d lines", fault, lines)
				}
				if strings.ContainsFunc(fault.String(), func(r rune) bool { return !strconv.IsPrint(r) }) || len(fault.Text) > 2000 {
					t.Errorf("fault %q", fault)
				}
			}
			return
		}
		if len(file.Policies()) != len(file.Mounts()) || len(file.Policies()) == 0 {
			t.Fatalf("%d policies, %d mounts", len(file.Policies()), len(file.Mounts()))
		}
		ratelimit.Must(ratelimit.New(ratelimit.Config{Store: noStore{}, Policies: file.Policies()}))
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: noStore{}, Policies: file.Everywhere(), Logger: slog.New(slog.DiscardHandler)}))
		h := file.Handler(l, http.NotFoundHandler())
		for _, path := range []string{"/", "/login", "/items/5"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", path, nil))
		}
	})
}
