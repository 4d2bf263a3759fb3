package ratelimit_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestXRateLimit(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	result := func(remaining int64, reset time.Duration) ratelimit.Result {
		return ratelimit.Result{
			Limit: ratelimit.PerMinute(60).WithBurst(10),
			State: store.State{Allowed: true, Remaining: remaining, ResetAfter: reset},
		}
	}
	shadow := result(0, time.Hour)
	shadow.Shadow = true
	denied := func(retry time.Duration) ratelimit.Result {
		r := result(0, 10*time.Second)
		r.Allowed, r.RetryAfter = false, retry
		r.Limit = ratelimit.Every(time.Hour)
		return r
	}
	for name, c := range map[string]struct {
		decision ratelimit.Decision
		want     [3]string
	}{
		"the reset is rounded up to a second":       {ratelimit.Decision{Allowed: true, At: at, Results: []ratelimit.Result{result(9, time.Microsecond)}}, [3]string{"10", "9", "1800000001"}},
		"a full bucket is reset now":                {ratelimit.Decision{Allowed: true, At: at, Results: []ratelimit.Result{result(10, 0)}}, [3]string{"10", "10", "1800000000"}},
		"a whole second is not rounded":             {ratelimit.Decision{Allowed: true, At: at, Results: []ratelimit.Result{result(9, time.Second)}}, [3]string{"10", "9", "1800000001"}},
		"the reset counts from within a second":     {ratelimit.Decision{Allowed: true, At: at.Add(time.Nanosecond), Results: []ratelimit.Result{result(9, time.Second)}}, [3]string{"10", "9", "1800000002"}},
		"the least remaining is shown":              {ratelimit.Decision{Allowed: true, At: at, Results: []ratelimit.Result{result(9, 0), result(3, 0), result(4, 0)}}, [3]string{"10", "3", "1800000000"}},
		"of equal ones the later reset is shown":    {ratelimit.Decision{Allowed: true, At: at, Results: []ratelimit.Result{result(3, 0), result(3, time.Second)}}, [3]string{"10", "3", "1800000001"}},
		"a shadow is not shown":                     {ratelimit.Decision{Allowed: true, At: at, Results: []ratelimit.Result{shadow, result(3, 0)}}, [3]string{"10", "3", "1800000000"}},
		"of a denial, what denied longest is shown": {ratelimit.Decision{At: at, Results: []ratelimit.Result{result(0, time.Hour), denied(time.Second), denied(ratelimit.Never)}}, [3]string{"1", "0", "1800000010"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			ratelimit.XRateLimit(h, &c.decision)
			got := [3]string{h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset")}
			if got != c.want || len(h) != 3 {
				t.Errorf("%q of %v, want %q", got, h, c.want)
			}
		})
	}
	h := http.Header{}
	ratelimit.XRateLimit(h, &ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{shadow}})
	if len(h) != 0 {
		t.Errorf("without an enforced policy: %v", h)
	}
}

func TestNoneLeavesTheHeadersThatADenialMustHave(t *testing.T) {
	h := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(1))},
		Headers:  headers.None,
	}).Handler(okHandler)
	if w := get(h); len(w.Header()) != 1 { // the recorder's Content-Type
		t.Errorf("allowed: %v", w.Header())
	}
	w := get(h)
	if w.Header().Get("Retry-After") != "60" || w.Header().Get("Cache-Control") != "no-store" || w.Header()["X-Ratelimit-Limit"] != nil {
		t.Errorf("denied: %v", w.Header())
	}
}

// A handler's own caching must not reach a denial, nor a denial's an allowed response.
func TestOnlyDenialsAreKeptFromCaches(t *testing.T) {
	h := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerMinute(1))}}).
		Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "public") }))
	if got := get(h).Header().Get("Cache-Control"); got != "public" {
		t.Errorf("allowed: Cache-Control is %q", got)
	}
	if got := get(h).Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("denied: Cache-Control is %q", got)
	}
}

func TestObeyingRetryAfterAlwaysAdmitsALoneClient(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	limits := []ratelimit.Limit{
		ratelimit.Every(30 * 24 * time.Hour), ratelimit.PerDay(3), ratelimit.PerHour(7).WithBurst(2), ratelimit.PerMinute(60).WithBurst(10),
		ratelimit.PerSecond(1).WithBurst(5), ratelimit.PerSecond(3), ratelimit.PerSecond(7).WithBurst(100), ratelimit.PerSecond(999_983).WithBurst(5),
		ratelimit.PerSecond(1_000_000),
	}
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		for i, limit := range limits {
			p := perIP("p"+strconv.Itoa(i), limit)
			p.Cost = func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64); return n }
			h := l.Limit(p)(okHandler)
			burst := max(limit.Burst, 1)
			if limit.Burst == 0 {
				burst = limit.Rate
			}
			get(h, with("Cost", strconv.FormatInt(burst, 10)))
			for range 20 {
				cost := with("Cost", strconv.FormatInt(1+r.Int64N(burst), 10))
				w := get(h, cost)
				if w.Code == 200 {
					continue
				}
				seconds, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
				if err != nil || seconds < 1 {
					t.Fatalf("%v: Retry-After %q", limit, w.Header().Get("Retry-After"))
				}
				c.Advance(time.Duration(seconds) * time.Second)
				if w := get(h, cost); w.Code != 200 {
					t.Fatalf("%v: %d after the Retry-After of %d s", limit, w.Code, seconds)
				}
			}
		}
	})
}

func TestAMillisecondBeforeRetryAfterIsTooEarly(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		for i, limit := range []ratelimit.Limit{ratelimit.PerHour(7), ratelimit.PerMinute(60).WithBurst(10), ratelimit.PerSecond(3), ratelimit.PerSecond(300).WithBurst(1)} {
			p := ratelimit.Policy{Name: "p" + strconv.Itoa(i), Limit: limit}
			take := func() ratelimit.Result {
				t.Helper()
				r, err := l.Take(t.Context(), p, "k", 1)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			for take().Allowed {
			}
			c.Advance(take().RetryAfter - time.Millisecond)
			if take().Allowed {
				t.Errorf("%v: allowed a millisecond before RetryAfter", limit)
			}
			c.Advance(time.Millisecond)
			if !take().Allowed {
				t.Errorf("%v: refused after RetryAfter", limit)
			}
		}
	})
}

// The default store goes by the machine's clock, which a bubble moves.
func TestTheDefaultStoreRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerSecond(2))}})
		defer l.Close()
		h := l.Handler(okHandler)
		serve := func() (w *httptest.ResponseRecorder) { return get(h) }
		for range 2 {
			serve()
		}
		w := serve()
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || w.Header().Get("X-RateLimit-Reset") != strconv.FormatInt(time.Now().Unix()+1, 10) {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		time.Sleep(500 * time.Millisecond)
		if w := serve(); w.Code != 200 {
			t.Errorf("after 500 ms: %d", w.Code)
		}
	})
}
