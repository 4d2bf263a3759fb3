package ratelimit_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// FuzzClientIP takes the lines of each header as lines, and an empty text as no header.
func FuzzClientIP(f *testing.F) {
	var finders []ratelimit.KeyFunc
	for _, m := range trustModels {
		finders = append(finders, ratelimit.ClientIP(m.cfg))
	}
	f.Fuzz(func(t *testing.T, peer, xff, forwarded, edge string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
		for name, lines := range map[string]string{"X-Forwarded-For": xff, "Forwarded": forwarded, edgeHeader: edge} {
			if lines != "" {
				r.Header[name] = strings.Split(lines, "\n")
			}
		}
		for i, m := range trustModels {
			want := m.slow(r).key()
			got, err := finders[i](r)
			switch {
			case err == nil && got == "", err != nil && got != "":
				t.Errorf("%s: got %q, %v; want one of them", m.name, got, err)
			case errors.Is(err, ratelimit.ErrBadRequest) && !errors.Is(err, ratelimit.ErrNoKey):
				got = badRequest
			}
			if got != want || err != nil && got == "" && !errors.Is(err, ratelimit.ErrNoKey) {
				t.Errorf("%s: got %q, %v; want %q", m.name, got, err, want)
			}
		}
	})
}
