package code_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// lockedLogin is the policy of docs/settling.md.
func lockedLogin() ratelimit.Policy {
	login := ratelimit.Policy{
		Name:    "login",
		Key:     ratelimit.RemoteIP(),
		Limit:   ratelimit.Every(15 * time.Minute).WithBurst(5),
		Settle:  ratelimit.FailedLogins,
		LockFor: time.Hour, // after five failed logins
	}
	return login
}

// The table of docs/settling.md.
func TestALockoutOfFixedLength(t *testing.T) {
	type found struct {
		next     time.Duration // until a client that has failed five times is let in again
		attempts int           // that it has then
		paced    bool          // a client that always leaves a token is never denied
	}
	for lockFor, want := range map[time.Duration]found{
		0:         {15 * time.Minute, 1, true},
		time.Hour: {time.Hour, 4, true},
	} {
		limiter, clock := moved(t)
		p := lockedLogin()
		p.LockFor = lockFor
		failing := limiter.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
		fail := func(n int, from string) {
			t.Helper()
			ratetest.WantStatuses(t, failing, slices.Repeat([]int{401}, n), ratetest.From(from))
		}
		fail(5, "192.0.2.1")
		var got found
		for ratetest.Get(failing).Code == 429 {
			clock.Advance(time.Minute)
			got.next += time.Minute
		}
		for got.attempts = 1; ratetest.Get(failing).Code == 401; got.attempts++ {
		}
		fail(4, "192.0.2.2")
		got.paced = true
		for range 100 {
			clock.Advance(15 * time.Minute)
			got.paced = got.paced && ratetest.Get(failing, ratetest.From("192.0.2.2")).Code == 401
		}
		if got != want {
			t.Errorf("LockFor %v: %+v, want %+v", lockFor, got, want)
		}
	}
}
