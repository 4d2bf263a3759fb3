package echoratelimit_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/contrib/echoratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// silent logs nothing.
var silent = slog.New(slog.DiscardHandler)

// newLimits returns a limiter for echo.
func newLimits(t *testing.T, cfg ratelimit.Config, adapter echoratelimit.Config) *echoratelimit.Limiter {
	t.Helper()
	cfg.Logger = silent
	return echoratelimit.New(ratetest.NewLimiter(t, cfg), adapter)
}

// A reply is a response. Its status is 0 if a server would close the connection instead.
type reply struct {
	status int
	header http.Header
	body   string
}

// send serves a request by h.
func send(h http.Handler, method, path string) (got reply) {
	defer func() {
		if recover() != nil {
			got = reply{}
		}
	}()
	w := recorder{httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return reply{w.Code, w.Result().Header, w.Body.String()}
}

// A recorder ignores informational responses, as clients do.
type recorder struct{ *httptest.ResponseRecorder }

func (r recorder) WriteHeader(status int) {
	if status >= 200 {
		r.ResponseRecorder.WriteHeader(status)
	}
}

// wantStatuses sends requests to a path.
func wantStatuses(t *testing.T, h http.Handler, method, path string, want ...int) {
	t.Helper()
	for i, status := range want {
		if got := send(h, method, path); got.status != status {
			t.Fatalf("request %d to %s %s: status %d, want %d: %s", i+1, method, path, got.status, status, got.body)
		}
	}
}

// anyone is a policy with one bucket for all requests.
func anyone(name string, limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.Static("all"), Limit: limit}
}

// failures is a policy for failed logins: two at once.
func failures() ratelimit.Policy {
	p := anyone("login", ratelimit.PerHour(2))
	p.Settle = ratelimit.FailedLogins
	return p
}

// responses returns a policy with a Settle that keeps what it gets.
func responses() (ratelimit.Policy, *ratelimit.Response) {
	got := new(ratelimit.Response)
	p := anyone("settled", ratelimit.PerHour(100))
	p.Settle = func(_ *http.Request, r ratelimit.Response) int64 {
		*got = r
		return r.Cost
	}
	return p, got
}

func hello(c echo.Context) error { return c.String(http.StatusOK, "hello") }
