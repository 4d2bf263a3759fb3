package blocks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

// locking is a policy for logins that locks for 15 minutes after five failed ones.
func locking(name string) ratelimit.Policy {
	p := settled(name, ratelimit.Every(time.Minute).WithBurst(5), ratelimit.FailedLogins)
	p.LockFor = 15 * time.Minute
	return p
}

func wantLogins(t *testing.T, h http.Handler, answer, n int) {
	t.Helper()
	wantStatuses(t, h, slices.Repeat([]int{answer}, n), query(fmt.Sprint(answer)))
}

func TestFiveFailedLoginsLockForExactlyFifteenMinutes(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		h := newLimiter(t, ratelimit.Config{Store: s}).Limit(locking("login"))(answering)
		good, bad := query("200"), query("401")
		for range 2 {
			wantLogins(t, h, 401, 2)
			wantLogins(t, h, 200, 9) // which count nothing
			wantLogins(t, h, 401, 3)
			for i := range 15 {
				wantDenied(t, h, (15-i)*60, good)
				wantDenied(t, h, (15-i)*60, bad) // a denial makes no lock longer
				c.Advance(time.Minute)
				if i == 14 {
					c.Advance(-time.Microsecond)
				}
			}
			wantDenied(t, h, 1, good)
			wantDenied(t, h, 1, bad)
			c.Advance(time.Microsecond)
			// It has refilled meanwhile. Without the lock, a token would have come after a minute.
		}
		wantStatuses(t, h, []int{401, 401, 401, 401, 401, 429}, bad)
	})
}

// The lock is not longer than the bucket itself needs, and not shorter.
func TestALockIsAFloorOfRetryAfter(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		p := locking("login")
		p.Limit, p.LockFor = ratelimit.Every(time.Hour).WithBurst(2), 15*time.Minute
		h := newLimiter(t, ratelimit.Config{Store: s}).Limit(p)(answering)
		wantLogins(t, h, 401, 2)
		wantDenied(t, h, 3600, query("200"))
		c.Advance(30 * time.Minute)
		wantDenied(t, h, 1800, query("200"))
		c.Advance(30 * time.Minute)
		wantStatuses(t, h, []int{401, 429}, query("401"))
		// And again: each last token locks.
		p.Limit = ratelimit.Every(time.Second).WithBurst(2)
		p.Name = "fast"
		h = newLimiter(t, ratelimit.Config{Store: s}).Limit(p)(answering)
		wantLogins(t, h, 401, 2)
		wantDenied(t, h, 900)
		c.Advance(15 * time.Minute)
		wantLogins(t, h, 401, 2)
		wantDenied(t, h, 900)
	})
}

func TestFourFailuresAndASuccessDoNotLock(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		h := newLimiter(t, ratelimit.Config{Store: s}).Limit(locking("login"))(answering)
		wantLogins(t, h, 401, 4)
		for range 3 {
			wantLogins(t, h, 200, 1) // takes the last token, locks, and ends the lock when it has succeeded
		}
		c.Advance(time.Minute)
		wantLogins(t, h, 401, 1)
		wantLogins(t, h, 200, 1)
		wantLogins(t, h, 401, 1)
		wantDenied(t, h, 900, query("200"))
	})
}

func TestFiveParallelLoginsWithOneSuccessDoNotLock(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		var arrived, answered sync.WaitGroup
		arrived.Add(5)
		release := make(chan struct{})
		limiter := newLimiter(t, ratelimit.Config{Store: s})
		parallel := limiter.Limit(locking("login"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived.Done()
			<-release
			answering.ServeHTTP(w, r)
		}))
		for i := range 5 {
			answer := "401"
			if i == 2 {
				answer = "200"
			}
			answered.Go(func() { get(parallel, query(answer)) })
		}
		arrived.Wait()
		// All five tokens are out. Which of them fail is not known, so Retry-After is an upper bound.
		wantDenied(t, limiter.Limit(locking("login"))(answering), 900, query("200"))
		close(release)
		answered.Wait()
		h := limiter.Limit(locking("login"))(answering)
		wantLogins(t, h, 200, 3)
		wantLogins(t, h, 401, 1)
		wantDenied(t, h, 900, query("200"))
	})
}

// Logins by user name are taken with Admit, and a success is refunded.
func TestAdmitAndRefundLockAsFailedLoginsDoes(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		p := ratelimit.Policy{Name: "name", Limit: ratelimit.Every(time.Minute).WithBurst(5), LockFor: 15 * time.Minute}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !l.Admit(w, r, ratelimit.Charge{Policy: p, Key: "user:ada"}) {
				return
			}
			answering.ServeHTTP(w, r)
			if r.URL.RawQuery == "200" {
				if _, err := l.Refund(r.Context(), p, "user:ada", 1); err != nil {
					t.Error(err)
				}
			}
		})
		wantLogins(t, h, 401, 4)
		wantLogins(t, h, 200, 3)
		wantLogins(t, h, 401, 1)
		wantDenied(t, h, 900, query("200"))
		c.Advance(15*time.Minute - time.Microsecond)
		wantDenied(t, h, 1, query("200"))
		c.Advance(time.Microsecond)
		wantStatuses(t, h, []int{401, 401, 401, 401, 401, 429}, query("401"))
		unblock(t, l, "name", "user:ada") // ends a lock, too, and adds no token
		wantDenied(t, h, 60)
		if _, err := l.Reset(t.Context(), named("name"), "user:ada"); err != nil {
			t.Error(err)
		}
		wantLogins(t, h, 401, 5)
		wantDenied(t, h, 900)
	})
}

// The client of the last login sees in its headers when it may come again.
func TestTheRequestThatLocksIsToldSo(t *testing.T) {
	for name, tt := range map[string]struct {
		format ratelimit.HeaderFunc
		want   map[string]string
	}{
		"X-RateLimit": {headers.DeltaSeconds, map[string]string{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "900"}},
		"IETF":        {headers.IETF, map[string]string{"Ratelimit": `"login";r=0;t=900`}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Headers: tt.format}, func(t *testing.T, q *queue) {
				p := locking("login")
				p.Limit = ratelimit.Every(time.Minute).WithBurst(2)
				var seen ratelimit.Result
				h := q.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					d, _ := ratelimit.FromContext(r.Context())
					seen = d.Results[0]
					answering.ServeHTTP(w, r)
				}))
				w := get(h, query("401"))
				if seen.Blocked || w.Code != 401 {
					t.Errorf("%d, %+v", w.Code, seen)
				}
				w = get(h, query("401"))
				if !seen.Allowed || !seen.Blocked || seen.Wait != 0 || seen.RetryAfter != 15*time.Minute || w.Code != 401 || w.Header().Get("Retry-After") != "" {
					t.Errorf("%d, %+v", w.Code, seen)
				}
				got := ratetest.Lines(t, w.Header())
				for name, value := range tt.want {
					if got[name] != value {
						t.Errorf("%s is %q, want %q", name, got[name], value)
					}
				}
			})
		})
	}
}

func TestWhatIsSettledIntoDebtLocks(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		p := settled("bytes", ratelimit.PerSecond(1).WithBurst(10), costs(9))
		p.LockFor = time.Hour
		h := l.Limit(p)(okHandler)
		wantStatuses(t, h, []int{200}) // leaves one
		p.Settle = costs(5)            // leaves a debt of 4
		wantStatuses(t, l.Limit(p)(okHandler), []int{200})
		wantDenied(t, h, 3600)
		c.Advance(time.Hour)
		wantStatuses(t, h, []int{200})
	})
}

func TestAfterAReloadRequestsAreSettledUnderTheNewLock(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		p := settled("bytes", ratelimit.PerSecond(1).WithBurst(10), costs(20))
		p.LockFor = time.Hour
		h := q.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			next := p
			next.LockFor = time.Minute
			if err := q.Reload(next); err != nil {
				t.Error(err)
			}
		}))
		wantStatuses(t, h, []int{200})
		wantDenied(t, h, 60)
	})
}

// A shadow measures the lock, and denies nobody.
func TestALockOfAShadowIsMeasured(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		p := locking("login")
		p.Shadow = true
		h := q.Limit(p)(answering)
		wantLogins(t, h, 401, 5)
		time.Sleep(15*time.Minute - time.Microsecond)
		wantLogins(t, h, 401, 1)
		if e := q.Last(); !slices.Equal(e.ShadowDenied(), []string{"login"}) || e.Results[0].RetryAfter != time.Microsecond {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Microsecond)
		wantLogins(t, h, 401, 1)
		if e := q.All()[len(q.All())-2]; e.Op != "request" || len(e.ShadowDenied()) > 0 {
			t.Errorf("%+v", e)
		}
	})
}

// A request of two policies waits under one, and may lock under the other. If it leaves, it has locked nothing.
func TestARequestThatLocksAndWaits(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		lock := perIP("lock", ratelimit.PerMinute(1))
		lock.LockFor = time.Hour
		queued := waiting(perIP("queued", ratelimit.Every(10*time.Second)), time.Minute)
		if _, err := q.Take(t.Context(), queued, address, 1); err != nil {
			t.Fatal(err)
		}
		h := q.Limit(lock, queued)(okHandler)
		left := arrive(h, t.Context())
		wantDenied(t, h, 3600)
		left.Leave()
		synctest.Wait()
		if strings.Contains(q.Log.String(), "not given back") {
			t.Error(q.Log.String())
		}
		stayed := arrive(h, t.Context())
		stayed.Want(t, 200, 10*time.Second)
		if e := q.Last(); !e.Results[0].Blocked || e.Results[0].RetryAfter != 3590*time.Second { // after the wait
			t.Errorf("%+v", e.Results[0])
		}
		wantDenied(t, h, 3590)
	})
}

// A request that waits for longer than it locks is told of no lock.
func TestALockThatEndsWhileItsRequestWaits(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		lock := perIP("lock", ratelimit.Every(time.Second))
		lock.LockFor = 3 * time.Second
		queued := waiting(perIP("queued", ratelimit.Every(10*time.Second)), time.Minute)
		if _, err := q.Take(t.Context(), queued, address, 1); err != nil {
			t.Fatal(err)
		}
		var seen ratelimit.Result
		arrive(q.Limit(lock, queued)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d, _ := ratelimit.FromContext(r.Context())
			seen = d.Results[0]
		})), t.Context()).Want(t, 200, 10*time.Second)
		if seen.Blocked || seen.RetryAfter != 0 || seen.ResetAfter != 0 {
			t.Errorf("%+v", seen)
		}
	})
}

func TestFaultsOfLockFor(t *testing.T) {
	p := perIP("login", ratelimit.PerHour(5))
	fault := func(lockFor, maxWait time.Duration) ratelimit.Policy {
		p := p
		p.LockFor, p.MaxWait = lockFor, maxWait
		return p
	}
	for name, tt := range map[string]struct {
		policy ratelimit.Policy
		want   []string
	}{
		"negative":     {fault(-time.Minute, 0), []string{"LockFor -1m0s", "from 1µs", "35 years", "0 for no lock"}},
		"too short":    {fault(999, 0), []string{"LockFor 999ns", "from 1µs"}},
		"too long":     {fault(36*365*24*time.Hour, 0), []string{"LockFor 315360h0m0s", "35 years"}},
		"with MaxWait": {fault(time.Minute, time.Second), []string{"LockFor 1m0s", "must be 0 where requests wait", "set MaxWait to 0"}},
		"both":         {fault(-1, time.Second), []string{"LockFor -1ns", "from 1µs", "set MaxWait to 0"}},
	} {
		_, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{tt.policy}})
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		checkText(t, err.Error(), append(tt.want, `Policies[0] ("login")`)...)
		l := newLimiter(t, ratelimit.Config{})
		checkPanic(t, func() { l.Limit(tt.policy) }, tt.want...)
		_, err = l.Take(t.Context(), tt.policy, "k", 1)
		checkText(t, fmt.Sprint(err), append(tt.want, "Take")...)
		_, err = l.TakeAll(t.Context(), ratelimit.Charge{Policy: tt.policy, Key: "k"})
		checkText(t, fmt.Sprint(err), append(tt.want, "TakeAll")...)
	}
	l := newLimiter(t, ratelimit.Config{})
	_, err := l.Wait(t.Context(), fault(time.Minute, 0), "k", 1)
	checkText(t, fmt.Sprint(err), "Wait", "do not use Wait or WaitAll")
	_, err = l.WaitAll(t.Context(), ratelimit.Charge{Policy: fault(time.Minute, 0), Key: "k"})
	checkText(t, fmt.Sprint(err), "WaitAll", "do not use Wait or WaitAll")
	for _, d := range []time.Duration{0, time.Microsecond, 35 * 365 * 24 * time.Hour} {
		if _, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{fault(d, 0)}}); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// A charge that takes nothing, and one that is refused, lock nothing.
func TestOnlyAChargeThatEmptiesTheBucketLocks(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		p := ratelimit.Policy{Name: "jobs", Limit: ratelimit.PerHour(5), LockFor: 24 * time.Hour}
		take := func(n int64, allowed, blocked bool) {
			t.Helper()
			if r, err := l.Take(t.Context(), p, "k", n); err != nil || r.Allowed != allowed || r.Blocked != blocked {
				t.Errorf("%d: %+v, %v, want allowed %t and blocked %t", n, r, err, allowed, blocked)
			}
		}
		take(0, true, false)
		take(6, false, false)
		take(4, true, false)
		take(2, false, false)
		take(1, true, true)
		take(1, false, true)
		if r, err := l.Refund(t.Context(), p, "k", 1); err != nil || r.Blocked || r.Remaining != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		take(0, true, false)

		// A lock makes no block shorter, and ends with none.
		block(t, l, "jobs", "k", 48*time.Hour)
		d, err := l.TakeAll(t.Context(), ratelimit.Charge{Policy: p, Key: "k", Cost: 3, Owed: true})
		if r := d.Results[0]; err != nil || !r.Blocked || r.RetryAfter < 47*time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
		if r, err := l.Refund(t.Context(), p, "k", 5); err != nil || !r.Blocked {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Locks make no difference to a policy in Redis or elsewhere that has none.
func TestWithoutLockForNothingLocks(t *testing.T) {
	rec := &recorder{Store: ratetest.Generous{}}
	l := newLimiter(t, ratelimit.Config{Store: rec})
	p := settled("api", ratelimit.PerHour(5), costs(9))
	get(l.Limit(p)(okHandler))
	p.LockFor = time.Minute
	get(l.Limit(p)(okHandler))
	_, _ = l.Take(t.Context(), p, "k", 0)
	_, err := l.Refund(t.Context(), p, "k", 1)
	var got []string
	for _, charges := range rec.Calls {
		got = append(got, fmt.Sprint(charges[0].Cost, " ", charges[0].Lock))
	}
	if want := []string{"1 0s", "8 0s", "1 1m0s", "8 1m0s", "0 0s", "-1 0s"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("costs and locks %q, want %q, error %v", got, want, err)
	}
}

// Both lock at the same time, and the outer one denies.
func TestALockInsideOfAnotherLimiter(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(locking("outer"))(q.Limit(locking("inner"))(answering))
		wantLogins(t, h, 401, 5)
		wantDenied(t, h, 900, query("200"))
	})
}
