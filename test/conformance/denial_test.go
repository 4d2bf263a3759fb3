package conformance

import (
	"net/http"
	"strings"
	"testing"
)

func method(m string) func(*http.Request) { return func(r *http.Request) { r.Method = m } }

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// wantDenial checks what every denial has.
func wantDenial(t *testing.T, a answer) {
	t.Helper()
	if a.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("status %d, want 429; body %q", a.StatusCode, a.body)
	}
	for _, name := range []string{"Retry-After", "Cache-Control", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		if values := a.Header.Values(name); len(values) != 1 || strings.Contains(values[0], ",") {
			t.Errorf("%s is %q, want one value", name, values)
		}
	}
}
