package denial_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Each form says that too many requests run at once, if this is what the client has to wait for and may know of.
func TestDenialOfAConcurrencyLimit(t *testing.T) {
	exports, minute := perIP("exports", ratelimit.Concurrency(3)), perIP("minute", ratelimit.PerMinute(1))
	hidden, shadow := exports, exports
	hidden.Hidden, shadow.Shadow = true, true
	none := store.State{RetryAfter: time.Second, ResetAfter: time.Second}
	empty := store.State{RetryAfter: 30 * time.Second, ResetAfter: time.Minute}
	for name, tt := range map[string]struct {
		policies        []ratelimit.Policy
		states          []store.State
		detail, message string
	}{
		"no slot":             {[]ratelimit.Policy{exports}, []store.State{none}, "Too many requests run at once. Try again in 1 second.", "too many requests at once"},
		"of a hidden policy":  {[]ratelimit.Policy{hidden}, []store.State{none}, "Try again in 1 second.", "rate limit exceeded"},
		"a rate denies, too":  {[]ratelimit.Policy{exports, minute}, []store.State{none, empty}, "Try again in 30 seconds.", "rate limit exceeded"},
		"a rate and a shadow": {[]ratelimit.Policy{shadow, minute}, []store.State{none, {RetryAfter: time.Second}}, "Try again in 1 second.", "rate limit exceeded"},
		"a blocked key": {[]ratelimit.Policy{exports}, []store.State{{Blocked: true, RetryAfter: time.Hour, ResetAfter: time.Hour}},
			"Try again in 60 minutes.", "rate limit exceeded"},
	} {
		var rpc denial.RPC
		answers := denial.Handler{GRPC: true}
		l := newLimiter(t, ratelimit.Config{
			Store: storeFunc(func(_ []store.Charge, states []store.State) bool { copy(states, tt.states); return false }),
			Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpc = denial.RPCOf(r, http.StatusTooManyRequests, w.Header())
				answers.ServeHTTP(w, r)
			}),
		})
		h := l.Limit(tt.policies...)(okHandler)
		for form, change := range forms {
			if title, detail := words(t, get(h, change...)); detail != tt.detail || title != "Too many requests" {
				t.Errorf("%s, %s: %q, %q, want %q", name, form, title, detail, tt.detail)
			}
		}
		if rpc.Message != tt.message {
			t.Errorf("%s: %q, want %q", name, rpc.Message, tt.message)
		}
	}
}
