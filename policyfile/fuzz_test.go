package policyfile_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

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
