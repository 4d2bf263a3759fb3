package policyfile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

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
