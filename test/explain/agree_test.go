// Package explain contains only tests, which compare Explain with Handler.
package explain_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An explanation is what Handler then does, for random requests, trust models, keys, policies and stacks of mounts: the
// same status, header, keys, results and wait. And it leaves each bucket as it was.
func TestExplainAgreesWithHandler(t *testing.T) {
	fresh := rand.Uint64()
	t.Logf("the last limiters begin with the seed %d", fresh)
	limiters, requests, counts := testsize.Of(60, 1500), 60, new(agreements)
	for i := range uint64(limiters) {
		seed := i
		if i >= uint64(limiters)*9/10 {
			seed += fresh
		}
		synctest.Test(t, func(t *testing.T) {
			rl := newRandomLimiter(t, seed)
			for n := range requests {
				rl.compare(n, counts)
				if t.Failed() {
					t.Fatalf("seed %d: %s", seed, rl)
				}
				time.Sleep(time.Duration(one(rl.Rand, 0, 0, rl.IntN(300), rl.IntN(3000))) * time.Millisecond)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%+v", *counts)
	total := counts.reached + counts.unlearned
	for _, n := range counts.refused {
		total += n
	}
	if total < 1000 || counts.reached < total/10 || counts.unlearned > total*2/3 || counts.refused[429] < total/20 || counts.refused[400] < 20 || counts.refused[403] < 20 || counts.refused[503] < 10 || counts.waited < 8 || counts.stacked < 100 {
		t.Errorf("the requests are too much alike: %+v", *counts)
	}
}

// agreements counts requests by what became of them.
type agreements struct {
	reached, unlearned, waited, stacked int
	refused                             map[int]int
}

// compare explains a random request, has it served, and compares the two.
func (rl *randomLimiter) compare(n int, counts *agreements) {
	r := rl.request()
	rl.probing, rl.reached, rl.route = true, false, ""
	rl.handler.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context()))
	rl.probing = false
	route, routed := rl.route, rl.reached
	if rl.chance(30) {
		rl.store.fails = one(rl.Rand, errors.New("the store is broken"), store.ErrOverloaded)
	}
	defer func() { rl.store.fails = nil }()
	innermost, learned := rl.learned[route]
	asked := r.Clone(r.Context())
	asked.Pattern = cmp.Or(innermost, route)

	asArrived, began := asked.Clone(r.Context()), time.Now()
	var e *explain.Explanation
	rec := httptest.NewRecorder()
	fault := func(format string, args ...any) {
		rl.Helper()
		explained, _ := json.MarshalIndent(e, "", "  ")
		rl.Errorf("request %d (%s %s at %q of %q, host %s, header %q): %s\nanswer %d %v %q\n%s",
			n, r.Method, r.URL, route, r.RemoteAddr, r.Host, r.Header, fmt.Sprintf(format, args...), rec.Code, rec.Header(), rec.Body, explained)
	}
	rl.events, rl.reached = nil, false
	rl.store.explaining = true
	e = rl.limiter.Explain(asked)
	rl.store.explaining = false
	if rl.reached || len(rl.events) > 0 {
		fault("Explain ran a handler: %t, or observed %d events", rl.reached, len(rl.events))
	}
	if !time.Now().Equal(began) {
		fault("Explain waited for %v", time.Since(began))
	}
	if !reflect.DeepEqual(asked.Header, asArrived.Header) || *asked.URL != *asArrived.URL || asked.Pattern != asArrived.Pattern || asked.RemoteAddr != asArrived.RemoteAddr || asked.Method != asArrived.Method {
		fault("Explain changed the request to %v", asked)
	}

	var before []store.State // of the buckets of e, in its order
	for _, l := range e.Limiters {
		for _, p := range l.Policies {
			if p.Before != nil {
				b, err := store.Inspect(rl.Context(), rl.store.Store, p.Name, p.Key)
				if err != nil {
					rl.Fatal(err)
				}
				before = append(before, b.State(compiled(rl.T, p.Limit)))
			}
		}
	}

	rl.handler.ServeHTTP(rec, r)
	if n := len(rl.events); rl.reached && n > 0 {
		rl.learned[route] = rl.events[n-1].Route
	}
	if !routed {
		return
	}
	if !learned || route == "unmatched" { // which several stacks of mounts may have
		counts.unlearned++
		return
	}
	for i, event := range rl.events {
		if event.Waited > 0 && i < len(rl.events)-1 {
			counts.waited++
			return // what follows is explained as of now
		}
	}
	status := rec.Code
	switch {
	case rl.reached:
		status = 0
		counts.reached++
	case status == 420: // by Deny
		status = http.StatusTooManyRequests
		fallthrough
	default:
		counts.refuse(status)
	}
	if e.Status != status {
		fault("Status %d", e.Status)
	}
	answered := rec.Result().Header // by the limiter
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options", "Vary", "X-Denied-By", "X-Error"} {
		answered.Del(name)
	}
	if !sameHeader(e.Header, answered) {
		fault("Header %v, want %v", e.Header, answered)
	}
	var waited time.Duration
	for _, event := range rl.events {
		waited += event.Waited
	}
	if waits := longestWait(e); waits != waited || rl.reached && rl.at.Sub(began) != waited {
		fault("explained to wait %v, and the request waited %v", waits, waited)
	}
	if waited > 0 {
		counts.waited++
	}

	mounts := slices.DeleteFunc(slices.Clone(e.Limiters), func(l explain.Limiter) bool { return l.Skipped || !l.Met })
	if len(mounts) != len(rl.events) {
		fault("%d mounts, and %d decisions", len(mounts), len(rl.events))
		return
	}
	if len(mounts) > 1 {
		counts.stacked++
	}
	for i, event := range rl.events {
		compareMount(fault, &mounts[i], event)
	}
	for _, l := range e.Limiters {
		for _, p := range l.Policies {
			if p.Before != nil {
				if *p.Before != before[0] {
					fault("%s: Before %+v, want %+v", p.Name, *p.Before, before[0])
				}
				before = before[1:]
			}
		}
	}
}

// longestWait returns how long the request waits at the mounts that it meets.
func longestWait(e *explain.Explanation) (longest time.Duration) {
	for _, l := range e.Limiters {
		for _, p := range l.Policies {
			if l.Met && !p.Shadow && p.After != nil {
				longest = max(longest, p.After.Wait)
			}
		}
	}
	return longest
}

func (c *agreements) refuse(status int) {
	if c.refused == nil {
		c.refused = make(map[int]int)
	}
	c.refused[status]++
}

// compiled returns a limit, which an explanation has as text, as a Store has it.
func compiled(t *testing.T, text string) store.Limit {
	t.Helper()
	l, err := ratelimit.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	if l.Period() != 0 {
		return ratelimit.Must(store.NewQuota(l.Rate, ratelimit.Must(store.NewPeriod(l.Period(), l.Zone()))))
	}
	limit, err := store.NewLimit(l.Rate, l.Per, cmp.Or(l.Burst, l.Rate))
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// sameHeader reports whether two headers are equal.
func sameHeader(a, b http.Header) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// compareMount compares what was explained of a mount with the decision there.
func compareMount(fault func(string, ...any), mount *explain.Limiter, event *ratelimit.Event) {
	if mount.Allowed != event.Allowed || event.Err == nil && mount.Err != "" || event.Err != nil && !event.Allowed && len(event.Denied()) == 0 && mount.Err == "" {
		fault("%s is allowed: %t, %q, want %t, %v", mount.Mounted, mount.Allowed, mount.Err, event.Allowed, event.Err)
	}
	results := make(map[string]*ratelimit.Result)
	for i := range event.Results {
		results[event.Results[i].Policy] = &event.Results[i]
	}
	for i := range mount.Policies {
		p := &mount.Policies[i]
		r := results[p.Name]
		delete(results, p.Name)
		if r == nil {
			if p.Outcome == explain.Allowed && event.Err == nil {
				fault("%s is %s, and has no result", p.Name, p.Outcome)
			}
			continue
		}
		want := explain.Denied
		switch {
		case r.Allowed && event.Allowed:
			want = explain.Allowed
		case r.Allowed:
			want = explain.NotCharged
		case r.Shadow:
			want = explain.WouldDeny
		}
		if p.Outcome != want || p.Why == "" || p.Key != r.Key || p.Limit != r.Limit.String() || p.LimitWhy == "" || p.Cost != r.Cost || p.Shadow != r.Shadow || p.Hidden != r.Hidden || p.Found == nil {
			fault("%s: %+v, want %s by %+v", p.Name, p, want, r)
		}
		if p.Found != nil && p.Found.Key != logtext.Show(r.Key, 256) {
			fault("%s: found %q, want %q", p.Name, p.Found.Key, r.Key)
		}
		if p.After != nil && *p.After != r.State {
			fault("%s: After %+v, want %+v", p.Name, *p.After, r.State)
		}
		if asked := r.Limit.Rate != 0; asked != (p.After != nil && p.Before != nil) && event.Err == nil {
			fault("%s: Before %+v and After %+v, and a bucket was asked: %t", p.Name, p.Before, p.After, asked)
		}
	}
	for name := range results {
		fault("%s is not explained", name)
	}
}

// Explanations, requests and changes of limits do not disturb each other: all tokens are spent, once.
func TestExplainWhileRequestsAreServed(t *testing.T) {
	const burst, callers = 400, 8
	p := ratelimit.Policy{Name: "p", Key: ratelimit.FirstOf(ratelimit.Header("X-Api-Key"), ratelimit.RemoteIP()), Limit: ratelimit.PerDay(1).WithBurst(burst)}
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{p}, Logger: slog.New(slog.DiscardHandler)}))
	defer l.Close()
	var served atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", l.Limit(ratelimit.Policy{Name: "q", Key: ratelimit.Route(), Limit: ratelimit.PerDay(1).WithBurst(burst * callers), Shadow: true})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })))
	h := l.Handler(mux)
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for range burst / 4 {
				r := httptest.NewRequest("GET", "/items/1", nil)
				r.Pattern = "GET /items/{id}"
				if e := l.Explain(r); e.Status != http.StatusTooManyRequests && (e.Status != 0 || e.Route != "GET /items/{id}") {
					t.Errorf("%+v", e)
				}
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	for i := range int64(50) {
		q := ratelimit.Override{Policy: "q", Limit: ratelimit.PerDay(1).WithBurst(burst*callers + i)}
		if err := errors.Join(l.Reload(p), l.Override([]ratelimit.Override{q})); err != nil {
			t.Error(err)
		}
	}
	working.Wait()
	if n := served.Load(); n != burst {
		t.Errorf("%d requests were served, want %d", n, burst)
	}
}
