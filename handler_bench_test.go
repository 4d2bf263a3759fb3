package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// BenchmarkHandler is the whole middleware on memory, for requests that are allowed.
func BenchmarkHandler(b *testing.B) {
	for _, by := range []struct {
		name string
		key  ratelimit.KeyFunc
	}{
		{"RemoteIP", ratelimit.RemoteIP()},
		{"ClientIP", ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})},
		{"Header", ratelimit.Header("X-Api-Key")},
	} {
		b.Run(by.name, func(b *testing.B) {
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{
				Policies: []ratelimit.Policy{{Name: "api", Key: by.key, Limit: ratelimit.PerHour(1_000_000_000)}},
			}))
			defer l.Close()
			h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			var clients atomic.Int32
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				client := fmt.Sprintf("192.0.2.%d", clients.Add(1))
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = client + ":34567"
				if by.name == "ClientIP" {
					r.RemoteAddr = "10.0.0.1:34567"
					r.Header.Set("X-Forwarded-For", client)
				}
				r.Header.Set("X-Api-Key", client)
				w := unseen{}
				for pb.Next() {
					clear(w)
					h.ServeHTTP(w, r)
				}
			})
		})
	}
}

// An unseen is a response that nobody reads.
type unseen http.Header

func (w unseen) Header() http.Header         { return http.Header(w) }
func (w unseen) Write(b []byte) (int, error) { return len(b), nil }
func (w unseen) WriteHeader(int)             {}
