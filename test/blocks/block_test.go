package blocks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// named is what Block needs of a policy.
func named(name string) ratelimit.Policy { return ratelimit.Policy{Name: name} }

func block(t *testing.T, l *ratelimit.Limiter, policy, key string, d time.Duration) {
	t.Helper()
	want := ratelimit.Result{Policy: policy, Key: key, State: store.State{Allowed: true, Blocked: true, RetryAfter: d, ResetAfter: d}}
	if r, err := l.Block(t.Context(), named(policy), key, d, ""); err != nil || r != want {
		t.Fatalf("%+v, %v\nwant %+v", r, err, want)
	}
}

func unblock(t *testing.T, l *ratelimit.Limiter, policy, key string) {
	t.Helper()
	want := ratelimit.Result{Policy: policy, Key: key, State: store.State{Allowed: true}}
	if r, err := l.Unblock(t.Context(), named(policy), key); err != nil || r != want {
		t.Fatalf("%+v, %v\nwant %+v", r, err, want)
	}
}

// wantDenied checks a 429, and the seconds of its Retry-After.
func wantDenied(t *testing.T, h http.Handler, after int, change ...func(*http.Request)) {
	t.Helper()
	if w := get(h, change...); w.Code != 429 || w.Header().Get("Retry-After") != strconv.Itoa(after) {
		t.Fatalf("%d, Retry-After %q, want 429 and %d", w.Code, w.Header().Get("Retry-After"), after)
	}
}

func TestABlockedKeyIsDeniedForExactlyAsLong(t *testing.T) {
	tier := perIP("tier", ratelimit.PerHour(1))
	tier.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerSecond(1000) }
	slow := perIP("slow", ratelimit.Every(24*time.Hour).WithBurst(3))
	for name, tt := range map[string]struct {
		policy ratelimit.Policy
		before int // requests
		left   int64
	}{
		"an unused key":            {perIP("api", ratelimit.PerSecond(1).WithBurst(5)), 0, 4},
		"a busy key":               {perIP("api", ratelimit.PerSecond(1).WithBurst(5)), 5, 4},
		"a key of a tier":          {tier, 0, 999},
		"a busy key of a tier":     {tier, 500, 999},
		"a key that refills later": {slow, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
				l := newLimiter(t, ratelimit.Config{Store: s})
				h := l.Limit(tt.policy)(okHandler)
				for range tt.before {
					wantStatuses(t, h, []int{200})
				}
				block(t, l, tt.policy.Name, address, time.Hour)
				wantStatuses(t, h, []int{200}, from("192.0.2.2")) // another
				wantDenied(t, h, 3600)
				c.Advance(time.Microsecond)
				wantDenied(t, h, 3600)
				c.Advance(time.Second)
				wantDenied(t, h, 3599)
				c.Advance(30 * time.Minute)
				wantDenied(t, h, 1799)
				c.Advance(30*time.Minute - time.Second - 2*time.Microsecond)
				wantDenied(t, h, 1)
				c.Advance(time.Microsecond)
				w := get(h)
				if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != 200 || got != fmt.Sprint(tt.left) {
					t.Errorf("at the end: %d with %s left, want %d", w.Code, got, tt.left)
				}
			})
		})
	}
}

func TestADenialOfABlockedKeySaysSoInAllDialects(t *testing.T) {
	const whole = `"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"`
	for name, tt := range map[string]struct {
		format ratelimit.HeaderFunc
		want   map[string]string
	}{
		"X-RateLimit":   {ratelimit.XRateLimit, map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "in 900"}},
		"delta seconds": {headers.DeltaSeconds, map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "900"}},
		"IETF":          {headers.IETF, map[string]string{"Ratelimit-Policy": `"api";q=5;w=5, "wide";q=100;w=1`, "Ratelimit": `"api";r=0;t=900, "wide";r=100;t=1`}},
		"Spring":        {headers.Spring, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Replenish-Rate": "1", "X-Ratelimit-Burst-Capacity": "5", "X-Ratelimit-Requested-Tokens": "1"}},
		"none":          {headers.None, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, ratelimit.Config{Headers: tt.format}, func(t *testing.T, q *queue) {
				h := q.Limit(perIP("api", ratelimit.PerSecond(1).WithBurst(5)), perIP("wide", ratelimit.PerSecond(100)))(okHandler)
				block(t, q.Limiter, "api", address, 15*time.Minute)
				want := map[string]string{"Retry-After": "900", "Cache-Control": "no-store", "Content-Type": "application/problem+json"}
				for name, value := range tt.want {
					if value == "in 900" {
						value = strconv.FormatInt(time.Now().Add(15*time.Minute).Unix(), 10)
					}
					want[name] = value
				}
				w := get(h)
				got := ratetest.Lines(t, w.Header())
				for name := range got {
					if want[name] == "" && (strings.Contains(name, "Ratelimit") || name == "Retry-After") {
						t.Errorf("%s: %s is not expected", name, got[name])
					}
				}
				for name, value := range want {
					if got[name] != value {
						t.Errorf("%s is %q, want %q", name, got[name], value)
					}
				}
				var problem struct {
					Status   int
					Detail   string
					Violated []string `json:"violated-policies"`
				}
				if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
					t.Fatal(err)
				}
				if w.Code != 429 || problem.Status != 429 || !slices.Equal(problem.Violated, []string{"api"}) || !strings.Contains(w.Body.String(), whole) || !strings.Contains(problem.Detail, "15 minutes") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				if q.Last().Denied()[0] != "api" || !q.Last().Results[0].Blocked {
					t.Errorf("%+v", q.Last())
				}
			})
		})
	}
}

// A bucket that takes longer to fill than its block is full later, and allows a request before that.
func TestResetAfterOfABlockedKey(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	p := perIP("api", ratelimit.Every(time.Hour).WithBurst(3))
	h := l.Limit(p)(okHandler)
	wantStatuses(t, h, []int{200, 200, 200})
	block(t, l, "api", address, time.Minute)
	r, err := l.Take(t.Context(), p, address, 1)
	if err != nil || r.Allowed || !r.Blocked || r.RetryAfter < 59*time.Minute || r.RetryAfter > time.Hour || r.ResetAfter < 179*time.Minute {
		t.Errorf("%+v, %v, want an hour for the next token", r, err)
	}
	if r, err := l.Take(t.Context(), p, address, 4); err != nil || r.Allowed || r.RetryAfter != ratelimit.Never {
		t.Errorf("%+v, %v, want Never above the burst", r, err)
	}
}

func TestABlockIsReplacedAndEnded(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		p := perIP("api", ratelimit.Every(time.Hour).WithBurst(5))
		h := l.Limit(p)(okHandler)
		unblock(t, l, "api", address) // which changes nothing
		wantStatuses(t, h, []int{200, 200})
		unblock(t, l, "api", address)
		block(t, l, "api", address, time.Minute)
		wantDenied(t, h, 60)
		block(t, l, "api", address, time.Hour) // longer
		wantDenied(t, h, 3600)
		block(t, l, "api", address, 10*time.Second) // shorter
		wantDenied(t, h, 10)
		c.Advance(10 * time.Second)
		wantStatuses(t, h, []int{200})

		block(t, l, "api", address, time.Hour)
		wantDenied(t, h, 3600)
		if r, err := l.Refund(t.Context(), p, address, 1); err != nil || !r.Blocked { // which ends no Block
			t.Errorf("%+v, %v", r, err)
		}
		wantDenied(t, h, 3600)
		unblock(t, l, "api", address)
		unblock(t, l, "api", address) // again
		wantStatuses(t, h, []int{200, 200, 200, 429})

		block(t, l, "api", address, time.Hour)
		if r, err := l.Reset(t.Context(), p, address); err != nil || r.Blocked || r.Remaining != 5 || r.RetryAfter != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		wantStatuses(t, h, []int{200, 200, 200, 200, 200, 429})
	})
}

func TestArgumentsOfBlock(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	for name, tt := range map[string]struct {
		policy ratelimit.Policy
		key    string
		d      time.Duration
		want   []string
	}{
		"0":                {named("api"), "k", 0, []string{"Block: d 0s", "at least 1µs", "Unblock"}},
		"negative":         {named("api"), "k", -time.Hour, []string{"Block: d -1h0m0s", "at least 1µs"}},
		"too short":        {named("api"), "k", time.Microsecond - 1, []string{"at least 1µs"}},
		"longer than life": {named("api"), "k", math.MaxInt64, []string{"at most", "35 years"}},
		"no name":          {ratelimit.Policy{}, "k", time.Hour, []string{"Block", "Name"}},
		"no key":           {named("api"), "", time.Hour, []string{"Block", "key: must not be empty"}},
	} {
		_, err := l.Block(t.Context(), tt.policy, tt.key, tt.d, "")
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		checkText(t, err.Error(), tt.want...)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Unblock(t.Context(), ratelimit.Policy{}, ""); err == nil || !strings.Contains(err.Error(), "Unblock: ") || !strings.Contains(err.Error(), "key: must not be empty") {
		t.Errorf("%v", err)
	}
	longest := 35 * 365 * 24 * time.Hour
	block(t, l, "api", "k", longest)
	p := named("api")
	p.Limit = ratelimit.PerSecond(1_000_000)
	if r, err := l.Take(t.Context(), p, "k", 1); err != nil || r.Allowed || r.RetryAfter < longest-time.Hour {
		t.Errorf("%+v, %v", r, err)
	}
}

// All fields of a policy may be set: those of a Policy that limits requests.
func TestBlockByTheWholePolicy(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	for name, limit := range map[string]ratelimit.Limit{"a limit": ratelimit.PerHour(5), "unlimited": ratelimit.Unlimited, "none": {}, "0": ratelimit.PerDay(0)} {
		p := perIP("api", limit)
		p.Hidden, p.FailClosed, p.LockFor, p.Optional = true, true, time.Minute, true
		if r, err := l.Block(t.Context(), p, address, time.Hour, ""); err != nil || !r.Blocked || !r.Hidden || r.RetryAfter != time.Hour {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		wantStatuses(t, l.Limit(perIP("api", ratelimit.PerHour(5)))(okHandler), []int{429})
		if r, err := l.Unblock(t.Context(), p, address); err != nil || r.Blocked || r.RetryAfter != 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		wantStatuses(t, l.Limit(perIP("other", ratelimit.PerHour(5)))(okHandler), []int{200})
	}
}

// Otherwise a policy whose cost is known only after the response would let them in.
func TestABlockedKeyIsDeniedRequestsThatCostNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		rec := &recorder{Store: s}
		var events ratetest.Events
		l := newLimiter(t, ratelimit.Config{Store: rec, Headers: headers.IETF, Observe: events.Observe})
		free := perIP("free", ratelimit.PerSecond(1).WithBurst(5))
		free.Cost, free.Settle = func(*http.Request) int64 { return 0 }, func(*http.Request, ratelimit.Response) int64 {
			t.Error("settled")
			return 0
		}
		shadow := perIP("shadow", ratelimit.PerHour(10))
		shadow.Shadow = true
		h := l.Limit(perIP("other", ratelimit.PerHour(10)), free, shadow)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("a blocked client was served")
		}))
		block(t, l, "free", address, time.Hour)
		wantDenied(t, h, 3600)
		w := get(h)
		if got, want := w.Header().Get("RateLimit"), `"other";r=10;t=3600, "free";r=0;t=3600`; got != want {
			t.Errorf("RateLimit is %s, want %s", got, want)
		}
		if e := events.Last(); e.Allowed || !slices.Equal(e.Denied(), []string{"free"}) || len(e.ShadowDenied()) > 0 || e.Results[0].Remaining != 10 {
			t.Errorf("%+v", e)
		}
		for _, p := range []string{"other", "shadow"} {
			if r, err := l.Peek(t.Context(), ratelimit.Policy{Name: p, Limit: ratelimit.PerHour(10)}, address); err != nil || r.Remaining != 10 {
				t.Errorf("%s: %+v, %v, want all 10 tokens", p, r, err)
			}
		}
		if d, err := l.Decide(httptest.NewRequest("GET", "/", nil), free); err != nil || d.Allowed || d.RetryAfter() < 59*time.Minute {
			t.Errorf("Decide: %+v, %v", d, err)
		}
		if r, err := l.Take(t.Context(), free, address, 0); err != nil || r.Allowed || r.RetryAfter < 59*time.Minute {
			t.Errorf("Take of 0: %+v, %v", r, err)
		}
		var late *ratelimit.WaitError
		if _, err := l.Wait(t.Context(), free, address, 0); !errors.As(err, &late) || late.RetryAfter < 59*time.Minute {
			t.Errorf("Wait for 0: %v", err)
		}
		if r, err := l.Peek(t.Context(), free, address); err != nil || !r.Allowed {
			t.Errorf("Peek: %+v, %v", r, err)
		}
	})
}

// A Shadow only measures that it is blocked, whatever the cost.
func TestABlockedShadowDeniesNothing(t *testing.T) {
	for _, cost := range []int64{0, 1} {
		var events ratetest.Events
		l := newLimiter(t, ratelimit.Config{Observe: events.Observe})
		shadow, other := settled("shadow", ratelimit.PerHour(10), costs(7)), perIP("other", ratelimit.PerHour(10))
		shadow.Shadow, shadow.Cost = true, func(*http.Request) int64 { return cost }
		block(t, l, "shadow", address, time.Hour)
		w := get(l.Limit(shadow, other)(okHandler))
		if w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "9" || len(events.All()) != 2 || !slices.Equal(events.Last().ShadowDenied(), []string{"shadow"}) {
			t.Errorf("cost %d: %d, %v, %d events, the last %+v", cost, w.Code, w.Header(), len(events.All()), events.Last())
		}
	}
}

func TestADenialOfAHiddenBlockedPolicyTellsNoName(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	hidden, shown := perIP("hidden", ratelimit.PerHour(10)), perIP("shown", ratelimit.PerHour(10))
	hidden.Hidden = true
	block(t, l, "hidden", address, time.Hour)
	w := get(l.Limit(hidden, shown)(okHandler))
	if w.Code != 429 || w.Header().Get("Retry-After") != "3600" || w.Header().Get("X-RateLimit-Remaining") != "10" || strings.Contains(w.Body.String(), "hidden") {
		t.Errorf("%d, %v, %s", w.Code, w.Header(), w.Body)
	}
}

// As documented: a limit that is not asked cannot say no.
func TestABlockDoesNotReachRequestsWithoutALimit(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Skip: func(r *http.Request) bool { return r.Method == "OPTIONS" }})
	p := perIP("api", ratelimit.PerHour(10))
	p.LimitFunc = func(r *http.Request) ratelimit.Limit {
		if r.Method == "PUT" {
			return ratelimit.Unlimited
		}
		return ratelimit.Limit{}
	}
	h := l.Limit(p)(okHandler)
	block(t, l, "api", address, time.Hour)
	wantStatuses(t, h, []int{429})
	wantStatuses(t, h, []int{200}, method("PUT"))
	wantStatuses(t, h, []int{200}, method("OPTIONS"))
}

// Requests that wait were charged before.
func TestABlockWhileRequestsWait(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(1)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		first, second, third := arrive(h, t.Context()), arrive(h, t.Context()), arrive(h, t.Context())
		block(t, q.Limiter, "api", address, 10*time.Second)
		late := arrive(h, t.Context())
		late.Want(t, 429, 0)
		if got := late.Header().Get("Retry-After"); got != "10" {
			t.Errorf("Retry-After is %s, want 10: nobody waits for the end of a block", got)
		}
		_, err := q.Wait(t.Context(), p, address, 1)
		var blocked *ratelimit.WaitError
		if !errors.As(err, &blocked) || blocked.RetryAfter != 10*time.Second || !strings.Contains(err.Error(), "blocked: retry after 10s") {
			t.Errorf("Wait: %v", err)
		}
		first.Want(t, 200, 0)
		second.Want(t, 200, time.Second)
		third.Want(t, 200, 2*time.Second)
		time.Sleep(8*time.Second - time.Microsecond)
		arrive(h, t.Context()).Want(t, 429, 0)
		time.Sleep(time.Microsecond)
		arrive(h, t.Context()).Want(t, 200, 0)
		arrive(h, t.Context()).Want(t, 200, time.Second)
	})
}

// A request that leaves while it waits gets its token back, and the block stays.
func TestABlockOutlivesARequestThatLeavesTheQueue(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(1)), time.Minute)
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(p)(okHandler)
		arrive(h, t.Context())
		second := arrive(h, t.Context())
		block(t, q.Limiter, "api", address, 10*time.Second)
		second.Leave()
		synctest.Wait()
		arrive(h, t.Context()).Want(t, 429, 0)
	})
}

func TestACallWithOneBlockedBucketChargesNone(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		user, org := ratelimit.Policy{Name: "user", Limit: ratelimit.PerHour(10)}, ratelimit.Policy{Name: "org", Limit: ratelimit.PerHour(10)}
		charges := []ratelimit.Charge{{Policy: user, Key: "u"}, {Policy: org, Key: "o"}}
		block(t, l, "org", "o", time.Hour)
		d, err := l.TakeAll(t.Context(), charges...)
		if err != nil || d.Allowed || !slices.Equal(d.Denied(), []string{"org"}) || d.RetryAfter() < 59*time.Minute || !d.Results[1].Blocked || d.Results[0].Blocked {
			t.Errorf("TakeAll: %+v, %v", d, err)
		}
		var late *ratelimit.WaitError
		if _, err := l.WaitAll(t.Context(), charges...); !errors.As(err, &late) || late.Result.Policy != "org" || late.RetryAfter < 59*time.Minute {
			t.Errorf("WaitAll: %v", err)
		}
		w := httptest.NewRecorder()
		if l.Admit(w, httptest.NewRequest("GET", "/", nil), charges...) || w.Code != 429 || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("Admit: %d, %v", w.Code, w.Header())
		}
		if r, err := l.Peek(t.Context(), user, "u"); err != nil || r.Remaining != 10 {
			t.Errorf("%+v, %v, want all 10 tokens", r, err)
		}

		// What is used already is charged all the same.
		owed := charges[1]
		owed.Owed, owed.Cost = true, 4
		if d, err := l.TakeAll(t.Context(), owed); err != nil || !d.Allowed || !d.Results[0].Blocked {
			t.Errorf("Owed: %+v, %v", d, err)
		}
		unblock(t, l, "org", "o")
		if r, err := l.Peek(t.Context(), org, "o"); err != nil || r.Remaining != 6 {
			t.Errorf("%+v, %v, want 6 of 10", r, err)
		}
	})
}

func TestPeekOfABlockedBucket(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		operator := newLimiter(t, ratelimit.Config{Store: s})
		for name, s := range map[string]store.Store{"inspected": s, "by a charge": ratetest.Bare{Store: s}} {
			l := newLimiter(t, ratelimit.Config{Store: s, Logger: slog.New(slog.DiscardHandler)})
			inspected := name == "inspected"
			p := ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(60)}
			since, reason := time.Duration(0), "ops: a test"
			peek := func(p ratelimit.Policy, limit ratelimit.Limit, used bool, state store.State) {
				t.Helper()
				state.Allowed = true
				want := ratelimit.Bucket{Used: used, Result: ratelimit.Result{Policy: "api", Key: name, Limit: limit, State: state}}
				if inspected && state.Blocked {
					want.BlockedSince, want.Reason = since, reason
				}
				if b, err := l.Peek(t.Context(), p, name); err != nil || b != want {
					t.Errorf("%s: %+v, %v\nwant %+v", name, b, err, want)
				}
			}
			if _, err := operator.Block(t.Context(), p, name, time.Hour, reason); err != nil {
				t.Fatal(err)
			}
			rest := store.State{Blocked: true, RetryAfter: time.Hour, ResetAfter: time.Hour}
			peek(p, p.Limit, false, rest)
			if inspected {
				peek(named("api"), ratelimit.Limit{}, false, rest)
			}
			c.Advance(30 * time.Minute)
			since = 30 * time.Minute
			rest = store.State{Blocked: true, RetryAfter: 30 * time.Minute, ResetAfter: 30 * time.Minute}
			peek(p, p.Limit, false, rest)

			unblock(t, operator, "api", name)
			if r, err := l.Take(t.Context(), p, name, 45); err != nil || !r.Allowed {
				t.Fatal(r, err)
			}
			block(t, operator, "api", name, time.Minute)
			since, reason = 0, ""
			rest = store.State{Blocked: true, RetryAfter: time.Minute, ResetAfter: 45 * time.Minute}
			peek(p, p.Limit, true, rest)
			if inspected {
				peek(named("api"), p.Limit, true, rest)
			}
			c.Advance(time.Minute)
			peek(p, p.Limit, true, store.State{Remaining: 16, ResetAfter: 44 * time.Minute})
		}
	})
}

// Neither a Store that fails, nor one of somebody that knows nothing of blocks, must say that a client is kept out.
func TestAStoreThatCannotBlockSaysSo(t *testing.T) {
	away := errors.New("away")
	for want, s := range map[error]store.Store{errors.ErrUnsupported: ratetest.Generous{}, away: ratetest.Failing(func() error { return away })} {
		var events ratetest.Events
		l := newLimiter(t, ratelimit.Config{Store: s, Observe: events.Observe, Logger: slog.New(slog.DiscardHandler)})
		for _, closed := range []bool{false, true} {
			p := named("api")
			p.FailClosed = closed
			if r, err := l.Block(t.Context(), p, "k", time.Hour, ""); !errors.Is(err, want) || r.Blocked {
				t.Errorf("%+v, %v", r, err)
			}
			if e := events.Last(); e.Op != "block" || !errors.Is(e.Err, want) {
				t.Errorf("%+v", e)
			}
			if r, err := l.Unblock(t.Context(), p, "k"); !errors.Is(err, want) || r.Blocked || want != away && !strings.Contains(err.Error(), "not a Blocker") {
				t.Errorf("Unblock: %+v, %v", r, err)
			}
		}
	}
}

// The operator may close the page at once.
func TestBlockDoesNotEndWithItsContext(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Block(ctx, named("api"), address, time.Hour, ""); err != nil {
		t.Error(err)
	}
	h := l.Limit(perIP("api", ratelimit.PerHour(10)))(okHandler)
	wantStatuses(t, h, []int{429})
	if _, err := l.Unblock(ctx, named("api"), address); err != nil {
		t.Error(err)
	}
	wantStatuses(t, h, []int{200})
}

// What a denied client is told holds, and what FromContext says.
func TestTheDecisionAboutABlockedKey(t *testing.T) {
	var denied, served ratelimit.Decision
	l := newLimiter(t, ratelimit.Config{Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.FromContext(r.Context())
		denied = *d
		w.WriteHeader(429)
	})})
	hour := perIP("hour", ratelimit.Every(time.Hour).WithBurst(2))
	block(t, l, "hour", address, 10*time.Minute)
	outer := perIP("outer", ratelimit.PerHour(10))
	wantStatuses(t, l.Limit(outer)(l.Limit(hour)(okHandler)), []int{429})
	if r := denied.Tightest(); denied.Allowed || denied.RetryAfter() != r.RetryAfter || r.Policy != "hour" || !r.Blocked || r.RetryAfter < 9*time.Minute || r.Until(2) != r.ResetAfter {
		t.Errorf("%+v", denied)
	}

	// An outer policy that locks with its last token is not over when an inner one has tokens again.
	lock := perIP("lock", ratelimit.PerHour(1))
	lock.LockFor = 3 * time.Hour
	minute := perIP("minute", ratelimit.PerMinute(1))
	get(l.Limit(minute)(okHandler))
	h := l.Limit(lock)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.FromContext(r.Context())
		served = *d
		l.Limit(minute)(okHandler).ServeHTTP(w, r)
	}))
	wantStatuses(t, h, []int{429})
	if r := &served.Results[0]; !served.Allowed || !r.Allowed || !r.Blocked || r.Remaining != 0 || r.Until(1) != r.RetryAfter || r.RetryAfter != 3*time.Hour {
		t.Errorf("%+v", served)
	}
	if after := denied.RetryAfter(); after != 3*time.Hour {
		t.Errorf("RetryAfter is %v, want the rest of the outer lock, 3h", after)
	}
}

// Replicas have nothing in common but Redis.
func TestABlockHoldsOnAllReplicasAtOnce(t *testing.T) {
	server := redistest.Start(t)
	c := newClock()
	p := perIP("api", ratelimit.PerSecond(1_000_000))
	var replicas []*ratelimit.Limiter
	for range 3 {
		replicas = append(replicas, newLimiter(t, ratelimit.Config{Store: ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{Clock: c.Now})), Policies: []ratelimit.Policy{p}}))
	}
	statuses := func(want int) {
		t.Helper()
		for _, l := range replicas {
			wantStatuses(t, l.Handler(okHandler), []int{want, want})
		}
	}
	statuses(200)
	block(t, replicas[0], "api", address, time.Hour)
	statuses(429)
	block(t, replicas[1], "api", address, time.Minute)
	wantDenied(t, replicas[1].Handler(okHandler), 60)
	c.Advance(time.Minute - time.Microsecond)
	wantDenied(t, replicas[1].Handler(okHandler), 1)
	c.Advance(time.Microsecond)
	wantStatuses(t, replicas[1].Handler(okHandler), []int{200})
	block(t, replicas[2], "api", address, time.Hour)
	statuses(429)
	unblock(t, replicas[1], "api", address)
	wantStatuses(t, replicas[1].Handler(okHandler), []int{200}) // the others may remember their denials for a second
}
