package conformance

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

var okHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })

// everybody is a policy under which all requests share a bucket.
func everybody(limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: "api", Key: ratelimit.Static("everybody"), Limit: limit}
}

// newLimiter returns a Limiter with enough time for a machine that is busy.
func newLimiter(t *testing.T, cfg ratelimit.Config) *ratelimit.Limiter {
	t.Helper()
	cfg.Timeout = 10 * time.Second
	return ratetest.NewLimiter(t, cfg)
}

// serve serves h on loopback until the test ends, and returns its URL. The test fails if the server complains.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	return adaptertest.ServeHTTP(t, h)
}

// An answer is a response that was read to its end.
type answer struct {
	*http.Response
	body string
}

// send sends a request, as change makes it, and takes the answer as it came: it does not decompress.
func send(t *testing.T, url string, change ...func(*http.Request)) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(body)}
}
