package denial_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

func TestRPCOf(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string // the header
		want       denial.RPC
		pushback   string
	}{
		{400, "", denial.RPC{Code: 3, Message: "bad request", RetryAfter: ratelimit.Never}, "-1"},
		{403, "5", denial.RPC{Code: 7, Message: "forbidden", RetryAfter: ratelimit.Never}, "-1"},
		{503, "5", denial.RPC{Code: 14, Message: "temporarily unavailable", RetryAfter: 5 * time.Second}, "5000"},
		{500, "", denial.RPC{Code: 14, Message: "temporarily unavailable"}, "0"},
	} {
		limited := http.Header{}
		if c.retryAfter != "" {
			limited.Set("Retry-After", c.retryAfter)
		}
		got := denial.RPCOf(httptest.NewRequest("POST", "/", nil), c.status, limited)
		if !reflect.DeepEqual(got, c.want) || got.Pushback() != c.pushback {
			t.Errorf("%d: got %+v with %s, want %+v with %s", c.status, got, got.Pushback(), c.want, c.pushback)
		}
	}
}

// A denial names the policies, and not the Retry-After of the header, which is in whole seconds.
func TestRPCOfADenial(t *testing.T) {
	var got denial.RPC
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = denial.RPCOf(r, http.StatusTooManyRequests, w.Header())
	})}))
	defer limiter.Close()
	h := limiter.Limit(ratelimit.Policy{Name: "api", Key: ratelimit.Static("all"), Limit: ratelimit.Every(time.Hour)})(http.NotFoundHandler())
	for range 2 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil))
	}
	if got.Code != 8 || got.Message != "rate limit exceeded" || !reflect.DeepEqual(got.Policies, []string{"api"}) {
		t.Errorf("got %+v", got)
	}
	if got.RetryAfter < 59*time.Minute || got.RetryAfter > time.Hour || got.RetryAfter%time.Second == 0 {
		t.Errorf("a retry after %v", got.RetryAfter)
	}
}

// A retry that comes too early is denied again, so the time is rounded up.
func TestPushback(t *testing.T) {
	for after, want := range map[time.Duration]string{0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2", 1500 * time.Microsecond: "2", time.Hour: "3600000", ratelimit.Never: "-1"} {
		if got := (denial.RPC{RetryAfter: after}).Pushback(); got != want {
			t.Errorf("%v: %s, want %s", after, got, want)
		}
	}
}

// The statuses are those of google/rpc/code.proto.
func TestRPCStatus(t *testing.T) {
	want := []int{500, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401, 500, 500}
	for code, want := range want {
		if got := denial.RPCStatus(uint32(code)); got != want {
			t.Errorf("code %d: %d, want %d", code, got, want)
		}
	}
	if got := denial.RPCStatus(1 << 31); got != 500 {
		t.Errorf("code 1<<31: %d, want 500", got)
	}
}
