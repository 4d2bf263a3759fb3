package denial_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// BenchmarkDenial is a request that is denied, without what the store costs.
func BenchmarkDenial(b *testing.B) {
	l, err := ratelimit.New(ratelimit.Config{Store: denying(3 * time.Second), Deny: denial.Handler{GRPC: true}})
	if err != nil {
		b.Fatal(err)
	}
	h := l.Limit(perIP("api", ratelimit.PerMinute(60)))(okHandler)
	for _, c := range []struct{ name, header, value string }{
		{"json", "Accept", "application/json, text/plain, */*"},
		{"text", "Accept", "text/plain"},
		{"page", "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		{"fragment", "HX-Request", "true"},
		{"long", "Accept", strings.Repeat("a/b,", 16<<10)},
		{"grpc", "Content-Type", "application/grpc"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set(c.header, c.value)
			overHTTP2(r)
			b.ReportAllocs()
			for b.Loop() {
				w := ratetest.NewDiscard()
				h.ServeHTTP(w, r)
			}
		})
	}
}
