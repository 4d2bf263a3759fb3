package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestTheTightestPolicyPaysForTheFewestFurtherRequests(t *testing.T) {
	type bucket struct {
		cost, remaining int64
		resets          time.Duration
	}
	for _, tt := range []struct {
		name    string
		buckets []bucket
		want    int
	}{
		{"of equal costs the one with fewer tokens", []bucket{{1, 40, 0}, {1, 39, 0}}, 1},
		{"a higher cost uses up more tokens", []bucket{{1, 39, 0}, {20, 80, 0}}, 1},
		{"in either order", []bucket{{20, 80, 0}, {1, 39, 0}}, 0},
		{"a part of a cost pays for nothing", []bucket{{1, 1, 0}, {20, 19, 0}}, 1},
		{"no cost is always paid for", []bucket{{0, 0, 0}, {1, 1000, 0}}, 1},
		{"a refund, too", []bucket{{-5, 0, 0}, {1, 1000, 0}}, 1},
		{"of as many requests the one with fewer tokens", []bucket{{20, 85, 0}, {10, 45, 0}}, 1},
		{"of as many tokens the one that is full later", []bucket{{1, 4, time.Second}, {1, 4, time.Minute}}, 1},
		{"of the same the first", []bucket{{1, 4, time.Second}, {1, 4, time.Second}}, 0},
		{"the greatest numbers", []bucket{{1, math.MaxInt64, 0}, {math.MaxInt64, math.MaxInt64, 0}}, 1},
		{"a debt pays for nothing", []bucket{{20, 19, 0}, {20, -500, 0}}, 1},
		{"of no cost the one with fewer tokens", []bucket{{0, 4, 0}, {0, 3, 0}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := ratelimit.Decision{Allowed: true}
			for _, b := range tt.buckets {
				d.Results = append(d.Results, ratelimit.Result{
					Policy: "p", Limit: ratelimit.PerHour(100), Cost: b.cost,
					State: store.State{Allowed: true, Remaining: b.remaining, ResetAfter: b.resets},
				})
			}
			if got := d.Tightest(); got != &d.Results[tt.want] {
				t.Errorf("got %+v", got)
			}
			// IETF shows one of those that have the same name, and the same one.
			h := make(http.Header)
			headers.IETF(h, &d)
			alone := make(http.Header)
			headers.IETF(alone, &ratelimit.Decision{Allowed: true, Results: d.Results[tt.want : tt.want+1]})
			if h.Get("RateLimit") != alone.Get("RateLimit") {
				t.Errorf("RateLimit is %s, want %s", h.Get("RateLimit"), alone.Get("RateLimit"))
			}
		})
	}
}

// Also of a Store that does not say when to retry.
func TestOfADeniedRequestTheTightestPolicyIsOneThatDenied(t *testing.T) {
	d := ratelimit.Decision{Results: []ratelimit.Result{
		{Policy: "allowed", Cost: 1, State: store.State{Allowed: true, ResetAfter: time.Hour}},
		{Policy: "denied", Cost: 1, State: store.State{Remaining: 5}},
	}}
	if got := d.Tightest(); got != &d.Results[1] {
		t.Errorf("got %+v", got)
	}
}

// Of 40 an hour at a cost of 1 and 100 an hour at a cost of 20, the second allows four more requests after the
// first one, and its numbers are shown.
func TestTheHeadersAreOfThePolicyThatEndsFirst(t *testing.T) {
	cheap, dear := perIP("cheap", ratelimit.PerHour(40)), perIP("dear", ratelimit.PerHour(100))
	dear.Cost = func(*http.Request) int64 { return 20 }
	for name, policies := range map[string][]ratelimit.Policy{"cheap first": {cheap, dear}, "dear first": {dear, cheap}} {
		for mount, wrap := range map[string]func(*ratelimit.Limiter) http.Handler{
			"together": func(l *ratelimit.Limiter) http.Handler { return l.Limit(policies...)(okHandler) },
			"stacked": func(l *ratelimit.Limiter) http.Handler {
				return l.Limit(policies[0])(l.Limit(policies[1])(okHandler))
			},
		} {
			h := wrap(newLimiter(t, ratelimit.Config{}))
			for i, want := range []string{"80", "60", "40", "20", "0", "0"} {
				w := get(h)
				status := 200
				if i == 5 {
					status = 429
				}
				if limit, remaining := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"); w.Code != status || limit != "100" || remaining != want {
					t.Errorf("%s, %s: request %d: %d, %s of %s remaining, want %s of 100", name, mount, i+1, w.Code, remaining, limit, want)
				}
			}
		}
	}
}

// A block has an end that the tokens do not know, and the tokens may come later.
func TestUntilOfABlockedBucket(t *testing.T) {
	r := ratelimit.Result{Limit: ratelimit.Every(time.Hour).WithBurst(4), Cost: 2}
	r.Blocked, r.RetryAfter, r.ResetAfter = true, 3*time.Hour, 4*time.Hour
	for name, tt := range map[string]struct {
		retryAfter time.Duration
		want       [4]time.Duration // for 1 to 4 tokens
	}{
		"the block ends in 10 minutes": {10 * time.Minute, [4]time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour}},
		"in 150 minutes":               {150 * time.Minute, [4]time.Duration{150 * time.Minute, 150 * time.Minute, 3 * time.Hour, 4 * time.Hour}},
		"when it is full":              {4 * time.Hour, [4]time.Duration{4 * time.Hour, 4 * time.Hour, 4 * time.Hour, 4 * time.Hour}},
		"not known":                    {ratelimit.Never, [4]time.Duration{4 * time.Hour, 4 * time.Hour, 4 * time.Hour, 4 * time.Hour}},
	} {
		r.RetryAfter = tt.retryAfter
		for i, want := range tt.want {
			if got := r.Until(int64(i + 1)); got != want {
				t.Errorf("%s: %d tokens come in %v, want %v", name, i+1, got, want)
			}
		}
	}
	r.Limit, r.RetryAfter, r.ResetAfter = ratelimit.Limit{}, time.Minute, time.Minute // as Peek returns it without a limit
	if got := r.Until(1); got != time.Minute {
		t.Errorf("without a limit: %v, want the rest of the block", got)
	}
}

// described puts all that an event tells into words.
func described(e *ratelimit.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "allowed=%t", e.Allowed)
	for i := range e.Results {
		r := &e.Results[i]
		fmt.Fprintf(&b, " %s(%s %d of %v)=%t", r.Policy, r.Key, r.Cost, r.Limit, r.Allowed)
	}
	if names := e.Denied(); names != nil {
		fmt.Fprintf(&b, " denied by %s", names)
	}
	if names := e.ShadowDenied(); names != nil {
		fmt.Fprintf(&b, " shadow-denied by %s", names)
	}
	if e.Degraded() {
		b.WriteString(" degraded")
	}
	fmt.Fprintf(&b, " took %v waited %v", e.Took, e.Waited)
	if e.Route != "" {
		fmt.Fprintf(&b, " route %q", e.Route)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, " error %q", e.Err)
	}
	return b.String()
}

// A call of the Store takes a millisecond here.
func TestEachDecisionHasOneEventThatIsComplete(t *testing.T) {
	a, b := perIP("a", ratelimit.PerMinute(1)), perIP("b", ratelimit.PerMinute(9))
	queued := waiting(a, time.Minute)
	changed := func(p ratelimit.Policy, change func(*ratelimit.Policy)) ratelimit.Policy {
		change(&p)
		return p
	}
	shadow := changed(a, func(p *ratelimit.Policy) { p.Name, p.Shadow = "s", true })
	closed := changed(a, func(p *ratelimit.Policy) { p.FailClosed = true })
	keyless := changed(a, func(p *ratelimit.Policy) { p.Key = noKey })
	optional := changed(keyless, func(p *ratelimit.Policy) { p.Name, p.Optional = "o", true })
	failing := changed(b, func(p *ratelimit.Policy) {
		p.Name, p.Key = "f", func(*http.Request) (string, error) { return "", fmt.Errorf("%w: away", ratelimit.ErrOutage) }
	})
	broken := changed(failing, func(p *ratelimit.Policy) { p.Name, p.Key = "p", finds("", errors.New("broken")) })
	bad := changed(failing, func(p *ratelimit.Policy) { p.Name, p.Key = "q", finds("", ratelimit.ErrBadRequest) })
	nothing := changed(a, func(p *ratelimit.Policy) {
		p.Name, p.LimitFunc = "n", func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
	})
	nothingInShadow := changed(nothing, func(p *ratelimit.Policy) { p.Name, p.Shadow = "m", true })
	unlimited := changed(a, func(p *ratelimit.Policy) { p.Name, p.Limit = "u", ratelimit.Unlimited })
	serve := func(ps ...ratelimit.Policy) func(*testing.T, *queue) {
		return func(t *testing.T, q *queue) { arrive(onRoute(q.Limit(ps...)(okHandler)), t.Context()) }
	}
	spent := func(then func(*testing.T, *queue), ps ...ratelimit.Policy) func(*testing.T, *queue) {
		return func(t *testing.T, q *queue) {
			serve(ps...)(t, q)
			time.Sleep(time.Millisecond)
			then(t, q)
		}
	}
	const first = "allowed=true a(ip:192.0.2.1 1 of 1/1m)=true took 1ms waited 0s route \"/items/{id}\""
	for _, tt := range []struct {
		name string
		cfg  ratelimit.Config
		do   func(*testing.T, *queue)
		want []string
	}{
		{"Allowed", ratelimit.Config{}, serve(a, b), []string{
			`allowed=true a(ip:192.0.2.1 1 of 1/1m)=true b(ip:192.0.2.1 1 of 9/1m)=true took 1ms waited 0s route "/items/{id}"`,
		}},
		{"Denied", ratelimit.Config{}, spent(serve(a, b), a), []string{
			first,
			`allowed=false a(ip:192.0.2.1 1 of 1/1m)=false b(ip:192.0.2.1 1 of 9/1m)=true denied by [a] took 1ms waited 0s route "/items/{id}"`,
		}},
		{"A shadow would have denied", ratelimit.Config{}, spent(serve(b, shadow), shadow), []string{
			`allowed=true s(ip:192.0.2.1 1 of 1/1m)=true took 1ms waited 0s route "/items/{id}"`,
			`allowed=true b(ip:192.0.2.1 1 of 9/1m)=true s(ip:192.0.2.1 1 of 1/1m)=false shadow-denied by [s] took 1ms waited 0s route "/items/{id}"`,
		}},
		{"No policy applies", ratelimit.Config{}, serve(optional, unlimited), []string{
			`allowed=true took 0s waited 0s route "/items/{id}"`,
		}},
		{"No key", ratelimit.Config{}, serve(b, keyless), []string{
			`allowed=false took 0s waited 0s route "/items/{id}" error "policy a: ratelimit: no key"`,
		}},
		{"A policy is left out", ratelimit.Config{}, serve(a, failing), []string{
			first + ` error "policy f: ratelimit: outage: away"`,
		}},
		{"All policies are left out", ratelimit.Config{}, serve(failing), []string{
			`allowed=true took 0s waited 0s route "/items/{id}" error "policy f: ratelimit: outage: away"`,
		}},
		{"A KeyFunc fails", ratelimit.Config{}, serve(a, broken), []string{
			`allowed=false took 0s waited 0s route "/items/{id}" error "policy p: broken"`,
		}},
		{"A bad request", ratelimit.Config{}, serve(b, broken, keyless, bad), []string{
			`allowed=false took 0s waited 0s route "/items/{id}" error "policy q: ratelimit: bad request"`,
		}},
		{"A rate of 0", ratelimit.Config{}, serve(b, nothing), []string{
			`allowed=false n(ip:192.0.2.1 1 of 0/24h)=false denied by [n] took 0s waited 0s route "/items/{id}"`,
		}},
		{"A rate of 0, and a policy is left out", ratelimit.Config{}, serve(failing, nothing), []string{
			`allowed=false n(ip:192.0.2.1 1 of 0/24h)=false denied by [n] took 0s waited 0s route "/items/{id}" error "policy f: ratelimit: outage: away"`,
		}},
		{"A rate of 0 in shadow", ratelimit.Config{}, serve(b, nothingInShadow, a), []string{
			`allowed=true b(ip:192.0.2.1 1 of 9/1m)=true m(ip:192.0.2.1 1 of 0/24h)=false a(ip:192.0.2.1 1 of 1/1m)=true shadow-denied by [m] took 1ms waited 0s route "/items/{id}"`,
		}},
		{"A rate of 0 in shadow alone", ratelimit.Config{}, serve(nothingInShadow), []string{
			`allowed=true m(ip:192.0.2.1 1 of 0/24h)=false shadow-denied by [m] took 0s waited 0s route "/items/{id}"`,
		}},
		{"The store failed", ratelimit.Config{Store: failed{}}, serve(a), []string{
			`allowed=true took 1ms waited 0s route "/items/{id}" error "on fire"`,
		}},
		{"The store failed, and a policy fails closed", ratelimit.Config{Store: failed{}}, serve(b, closed), []string{
			`allowed=false took 1ms waited 0s route "/items/{id}" error "on fire"`,
		}},
		{"A stand-in answered", ratelimit.Config{Store: ratetest.StandIn(generous{})}, serve(a), []string{
			`allowed=true a(ip:192.0.2.1 1 of 1/1m)=true degraded took 0s waited 0s route "/items/{id}"`,
		}},
		{"A stand-in answered, and a policy fails closed", ratelimit.Config{Store: ratetest.StandIn(generous{})}, serve(closed), []string{
			`allowed=false took 0s waited 0s route "/items/{id}" error "the store is unavailable, and a stand-in answered"`,
		}},
		{"The client had gone", ratelimit.Config{}, func(t *testing.T, q *queue) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			arrive(onRoute(q.Limit(queued)(okHandler)), ctx)
		}, []string{
			`allowed=true a(ip:192.0.2.1 1 of 1/1m)=true took 1ms waited 0s route "/items/{id}"`,
		}},
		{"The request had no time left", ratelimit.Config{}, func(t *testing.T, q *queue) {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now())
			defer cancel()
			arrive(onRoute(q.Limit(a)(okHandler)), ctx)
		}, []string{
			`allowed=false took 0s waited 0s route "/items/{id}" error "the request has no time left: context deadline exceeded"`,
		}},
		{"Waited", ratelimit.Config{}, spent(serve(queued), a), []string{
			first,
			`allowed=true a(ip:192.0.2.1 1 of 1/1m)=true took 1ms waited 59.999s route "/items/{id}"`,
		}},
		{"Left while it waited", ratelimit.Config{}, spent(func(t *testing.T, q *queue) {
			request := arrive(onRoute(q.Limit(queued)(okHandler)), t.Context())
			time.Sleep(11 * time.Millisecond)
			request.Leave()
		}, a), []string{
			first,
			`allowed=false a(ip:192.0.2.1 1 of 1/1m)=true took 2ms waited 10ms route "/items/{id}" error "context canceled"`,
		}},
		{"No place to wait", ratelimit.Config{MaxWaiting: 1}, spent(func(t *testing.T, q *queue) {
			serve(queued)(t, q)
			serve(queued)(t, q)
		}, a), []string{
			first,
			`allowed=false a(ip:192.0.2.1 1 of 1/1m)=false denied by [a] took 1ms waited 0s route "/items/{id}"`,
			`allowed=true a(ip:192.0.2.1 1 of 1/1m)=true took 1ms waited 59.999s route "/items/{id}"`,
		}},
		{"Skipped", ratelimit.Config{Skip: func(*http.Request) bool { return true }}, serve(a), nil},
		{"Decide", ratelimit.Config{}, func(t *testing.T, q *queue) {
			onRoute(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = q.Decide(r, a)
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}, []string{first}},
		{"Take and its kin, in a handler", ratelimit.Config{}, func(t *testing.T, q *queue) {
			arrive(onRoute(q.Limit(a)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = q.Take(r.Context(), b, "k", 9)
				_, _ = q.Take(r.Context(), b, "k", 1)
				_, _ = q.Wait(r.Context(), b, "k", 2)
				_, _ = q.Peek(r.Context(), b, "k")
				_, _ = q.Refund(r.Context(), b, "k", 3)
				_, _ = q.Reset(r.Context(), b, "k")
			}))), t.Context())
		}, []string{
			first,
			`allowed=true b(k 9 of 9/1m)=true took 1ms waited 0s`,
			`allowed=false b(k 1 of 9/1m)=false denied by [b] took 1ms waited 0s`,
			`allowed=true b(k 2 of 9/1m)=true took 1ms waited 13.331334s`,
			`allowed=true b(k 0 of 9/1m)=true took 1ms waited 0s`,
			`allowed=true b(k -3 of 9/1m)=true took 1ms waited 0s`,
			`allowed=true b(k -9223372036854775808 of 9/1m)=true took 1ms waited 0s`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.cfg, func(t *testing.T, q *queue) {
				q.Store.Fault = func([]store.Charge) error {
					time.Sleep(time.Millisecond)
					return nil
				}
				tt.do(t, q)
				time.Sleep(time.Hour) // whoever waits has gone on
				synctest.Wait()
				var got []string
				for _, e := range q.All() {
					got = append(got, described(e))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
				}
			})
		})
	}
}

// failed is a Store that fails after a millisecond.
type failed struct{}

func (failed) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	time.Sleep(time.Millisecond)
	return false, errors.New("on fire")
}

func TestEachStackedLimiterHasAnEventOfItsOwnPolicies(t *testing.T) {
	var seen []string
	cfg := func(name string) ratelimit.Config {
		return ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) {
			var policies []string
			for i := range e.Results {
				policies = append(policies, e.Results[i].Policy)
			}
			seen = append(seen, fmt.Sprint(name, ": ", policies, " denied by ", e.Denied(), e.ShadowDenied(), " on ", e.Route))
		}}
	}
	outer, inner := newLimiter(t, cfg("outer")), newLimiter(t, cfg("inner"))
	shadow := perIP("shadow", ratelimit.PerHour(1))
	shadow.Shadow = true
	r := chi.NewRouter()
	r.Use(outer.Limit(perIP("all", ratelimit.PerHour(9)), shadow))
	r.With(inner.Limit(perIP("one", ratelimit.PerHour(1)))).Get("/items/{id}", ok)
	path := func(r *http.Request) { r.URL.Path = "/items/5" }
	wantStatuses(t, r, []int{200, 429}, path)
	want := []string{
		"outer: [all shadow] denied by [] [] on GET /items/{id}",
		"inner: [one] denied by [] [] on GET /items/{id}",
		"outer: [all shadow] denied by [] [shadow] on GET /items/{id}",
		"inner: [one] denied by [one] [] on GET /items/{id}",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheRouteOfAnEventIsTheKeyOfRouteWithoutItsKind(t *testing.T) {
	onMux := func(limit func(http.Handler) http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", limit(ok))
		return mux
	}
	aroundMux := func(limit func(http.Handler) http.Handler) http.Handler {
		return limit(onMux(func(h http.Handler) http.Handler { return h }))
	}
	onChi := func(limit func(http.Handler) http.Handler) http.Handler {
		r := chi.NewRouter()
		r.Use(limit)
		r.Route("/v1", func(r chi.Router) { r.Get("/items/{id}", ok.ServeHTTP) })
		return r
	}
	for _, tt := range []struct {
		name   string
		build  func(func(http.Handler) http.Handler) http.Handler
		target string
		want   string
	}{
		{"On a route of a ServeMux", onMux, "/items/5", "GET /items/{id}"},
		{"Around a ServeMux", aroundMux, "/items/5", ""},
		{"In chi", onChi, "/v1/items/5", "GET /v1/items/{id}"},
		{"In chi, where nothing matches", onChi, "/forged", "unmatched"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			l := newLimiter(t, ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) { got = append(got, e.Route) }})
			h := tt.build(l.Limit(perIP("api", ratelimit.PerHour(9))))
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", tt.target, nil))
			if !slices.Equal(got, []string{tt.want}) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Routers use what they know of a request again for the next.
func TestAnEventMayBeKept(t *testing.T) {
	const requests = 200
	events := make(chan *ratelimit.Event, requests)
	l := newLimiter(t, ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) { events <- e }})
	r := chi.NewRouter()
	r.Use(l.Limit(perIP("api", ratelimit.PerHour(requests/2))))
	r.With(l.Limit(perIP("inner", ratelimit.PerHour(1)))).Get("/items/{id}", ok)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range requests {
			r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/other", nil))
		}
	}()
	routes := make(map[string]int)
	for range requests {
		e := <-events
		routes[fmt.Sprint(e.Route, e.Denied())]++
	}
	<-done
	if routes["unmatched[]"] != requests/2 || routes["unmatched[api]"] != requests/2 {
		t.Errorf("got %v", routes)
	}
}

// A seen is an event and the context that it came with.
type seen struct {
	*ratelimit.Event
	ctx context.Context
}

// A witness keeps all events.
type witness struct {
	mu   sync.Mutex
	seen []seen
}

func (o *witness) observe(ctx context.Context, e *ratelimit.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, seen{e, ctx})
}

// take returns the events since the last call.
func (o *witness) take() []seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.seen = nil }()
	return o.seen
}

// settlements returns the "settle" events since the last call of take.
func (o *witness) settlements() (all []seen) {
	for _, e := range o.take() {
		if e.Op == "settle" {
			all = append(all, e)
		}
	}
	return all
}

func ops(events []seen) (all []string) {
	for _, e := range events {
		all = append(all, e.Op)
	}
	return all
}

// costsOf puts what a settlement came to into words.
func costsOf(e seen) string {
	var b strings.Builder
	for i := range e.Results {
		fmt.Fprintf(&b, "%s(%s) %d->%d ", e.Results[i].Policy, e.Results[i].Key, e.Estimates[i], e.Results[i].Cost)
	}
	return strings.TrimSpace(b.String())
}

// Each method has one event, which says which it was.
func TestEachOperationHasOneEventOfItsName(t *testing.T) {
	var o witness
	l := newLimiter(t, ratelimit.Config{Observe: o.observe, Logger: slog.New(slog.DiscardHandler)})
	p, zero := perIP("p", ratelimit.PerHour(100)), perIP("z", ratelimit.PerHour(1))
	zero.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(0) }
	ctx := t.Context()
	request := httptest.NewRequest("GET", "/", nil)
	serve := func(p ratelimit.Policy) func() { return func() { get(l.Limit(p)(okHandler)) } }
	changed := func(change func(*ratelimit.Policy)) ratelimit.Policy {
		p := p
		change(&p)
		return p
	}
	for _, tt := range []struct {
		want string
		do   func()
	}{
		{"request", serve(p)},
		{"request", serve(changed(func(p *ratelimit.Policy) { p.Limit = ratelimit.PerHour(1); p.Name = "one" }))},
		{"request", serve(changed(func(p *ratelimit.Policy) { p.Limit = ratelimit.PerHour(1); p.Name = "one" }))}, // denied
		{"request", serve(changed(func(p *ratelimit.Policy) { p.Key = noKey }))},
		{"request", serve(zero)},
		{"request", serve(waiting(p, time.Minute))},
		{"decide", func() { _, _ = l.Decide(request, p) }},
		{"decide", func() { _, _ = l.Decide(request, zero) }},
		{"admit", func() { l.Admit(httptest.NewRecorder(), request, ratelimit.Charge{Policy: p, Key: "k"}) }},
		{"admit", func() { l.Admit(httptest.NewRecorder(), request) }}, // a fault
		{"take", func() { _, _ = l.Take(ctx, p, "k", 1) }},
		{"take", func() { _, _ = l.Take(ctx, p, "k", 0) }},
		{"take", func() { _, _ = l.Take(ctx, p, "k", 1000) }},
		{"take_all", func() { _, _ = l.TakeAll(ctx, ratelimit.Charge{Policy: p, Key: "k"}) }},
		{"wait", func() { _, _ = l.Wait(ctx, p, "k", 1) }},
		{"wait", func() { _, _ = l.Wait(ctx, p, "k", 1000) }},
		{"wait_all", func() { _, _ = l.WaitAll(ctx, ratelimit.Charge{Policy: p, Key: "k"}) }},
		{"peek", func() { _, _ = l.Peek(ctx, p, "k") }},
		{"refund", func() { _, _ = l.Refund(ctx, p, "k", 1) }},
		{"reset", func() { _, _ = l.Reset(ctx, p, "k") }},
		{"block", func() { _, _ = l.Block(ctx, p, "k", time.Hour, "") }},
		{"unblock", func() { _, _ = l.Unblock(ctx, p, "k") }},
	} {
		tt.do()
		events := o.take()
		if got := ops(events); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("got %q, want one %q", got, tt.want)
			continue
		}
		if events[0].Estimates != nil {
			t.Errorf("%s: estimates %v", tt.want, events[0].Estimates)
		}
	}
	_, _ = l.Take(ctx, p, "", 1)
	_, _ = l.Block(ctx, p, "k", 0, "")
	_, _ = l.Block(ctx, ratelimit.Policy{}, "k", time.Hour, "")
	if got := ops(o.take()); len(got) > 0 {
		t.Errorf("wrong arguments have events: %q", got)
	}
}

// However the request ends, and also where nothing is left to charge.
func TestEachRequestThatWasChargedIsSettledInOneEvent(t *testing.T) {
	type valueKey struct{}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"as estimated", func(http.ResponseWriter, *http.Request) {}, "api(ip:192.0.2.1) 5->5"},
		{"less", func(_ http.ResponseWriter, r *http.Request) { ratelimit.SetCost(r.Context(), "api", 2) }, "api(ip:192.0.2.1) 5->2"},
		{"nothing", func(_ http.ResponseWriter, r *http.Request) { ratelimit.SetCost(r.Context(), "api", -7) }, "api(ip:192.0.2.1) 5->0"},
		{"more", func(_ http.ResponseWriter, r *http.Request) { ratelimit.SetCost(r.Context(), "api", 70) }, "api(ip:192.0.2.1) 5->70"},
		{"a panic", func(_ http.ResponseWriter, r *http.Request) {
			ratelimit.SetCost(r.Context(), "api", 8)
			panic(http.ErrAbortHandler)
		}, "api(ip:192.0.2.1) 5->8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o witness
			l := newLimiter(t, ratelimit.Config{Observe: o.observe})
			api := settled("api", ratelimit.PerHour(10), asCharged)
			api.Cost = func(*http.Request) int64 { return 5 }
			mux := http.NewServeMux()
			mux.Handle("GET /items/{id}", l.Limit(api, perIP("plain", ratelimit.PerHour(10)))(tt.handler))
			ctx, leave := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "trace"))
			defer leave()
			func() {
				defer func() { _ = recover() }()
				mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/items/5", nil).WithContext(ctx))
			}()
			events := o.take()
			if got := ops(events); !slices.Equal(got, []string{"request", "settle"}) {
				t.Fatalf("got %q", got)
			}
			e := events[1]
			if got := costsOf(e); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if !e.Allowed || e.Err != nil || e.Degraded() || e.Denied() != nil || e.Waited != 0 || e.Took <= 0 || e.Route != "GET /items/{id}" {
				t.Errorf("%+v", e.Event)
			}
			if e.ctx.Value(valueKey{}) != "trace" || e.ctx.Err() != nil {
				t.Errorf("the context has %v, error %v", e.ctx.Value(valueKey{}), e.ctx.Err())
			}
			if d, ok := ratelimit.FromContext(e.ctx); !ok || len(d.Results) != 2 {
				t.Errorf("the context has the decision %+v, %t", d, ok)
			}
			if r := &e.Results[0]; r.Limit != api.Limit || !r.Known() || r.Remaining != max(0, 10-r.Cost) {
				t.Errorf("%+v, want what is left of the bucket", r)
			}
		})
	}
}

// All of a limiter is settled in one call. Its event has the state after that.
func TestTheStateOfASettlementIsThatAfterIt(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	rec := &recorder{Store: s}
	var o witness
	l := newLimiter(t, ratelimit.Config{Store: rec, Observe: o.observe})
	more, less := settled("more", ratelimit.PerSecond(1).WithBurst(10), costs(30)), settled("less", ratelimit.PerHour(10), costs(0))
	same, shadow := settled("same", ratelimit.PerHour(10), costs(1)), settled("shadow", ratelimit.PerHour(10), costs(4))
	shadow.Shadow = true
	full := settled("full", ratelimit.PerHour(10), costs(0)) // a Shadow that cannot pay is not charged, and given nothing
	full.Shadow, full.Cost = true, func(*http.Request) int64 { return 11 }
	get(l.Limit(more, less, perIP("plain", ratelimit.PerHour(10)), same, shadow, full)(okHandler))
	settlements := o.settlements()
	if len(settlements) != 1 || len(rec.Calls) != 2 {
		t.Fatalf("%d settlements, %d calls of the store, want 1 and 2", len(settlements), len(rec.Calls))
	}
	charged := ""
	for _, c := range rec.Calls[1] {
		charged += fmt.Sprintf("%s %d owed %t shadow %t; ", c.Policy, c.Cost, c.Owed, c.Shadow)
	}
	if want := "more 29 owed true shadow false; less -1 owed false shadow false; shadow 3 owed true shadow true; "; charged != want {
		t.Errorf("settled %s, want %s", charged, want)
	}
	e := settlements[0]
	if got, want := costsOf(e), "more(ip:192.0.2.1) 1->30 less(ip:192.0.2.1) 1->0 same(ip:192.0.2.1) 1->1 shadow(ip:192.0.2.1) 1->4"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if r := e.Results[0]; r.Remaining != 0 || r.ResetAfter < 29*time.Second || r.ResetAfter > 30*time.Second {
		t.Errorf("%+v, want a debt of 20 of a burst of 10", r)
	}
	if less, same, shadow := e.Results[1], e.Results[2], e.Results[3]; less.Remaining != 10 || same.Remaining != 9 || shadow.Remaining != 6 || !shadow.Shadow {
		t.Errorf("%+v, want a bucket that is full again, the state of the decision, and a shadow with 6", e.Results)
	}

	rec.Calls = nil
	get(l.Limit(same)(okHandler))
	if len(rec.Calls) != 1 {
		t.Errorf("%d calls where nothing is to be settled, want 1", len(rec.Calls))
	}
}

func TestARequestThatWasNotChargedHasNoSettlement(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	rec := &recorder{Store: s}
	var o witness
	l := newLimiter(t, ratelimit.Config{Store: rec, Observe: o.observe, Logger: slog.New(slog.DiscardHandler)})
	p := settled("api", ratelimit.PerHour(1), func(*http.Request, ratelimit.Response) int64 {
		t.Error("Settle was asked about a request that was not charged")
		return 5
	})
	exempt := p
	exempt.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.Unlimited }
	wantStatuses(t, l.Limit(exempt)(okHandler), []int{200})
	wantStatuses(t, l.Limit(perIP("plain", ratelimit.PerHour(1)))(okHandler), []int{200})
	rec.Fault = func([]store.Charge) error { return errors.New("away") }
	wantStatuses(t, l.Limit(p)(okHandler), []int{200})
	rec.Fault = nil
	if _, err := l.Take(t.Context(), p, "ip:192.0.2.1", 1); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, l.Limit(p)(okHandler), []int{429})
	if got, want := ops(o.take()), []string{"request", "request", "request", "take", "request"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The client has its answer by then.
func TestASettlementThatFailsSaysSo(t *testing.T) {
	away := errors.New("away")
	for name, tt := range map[string]struct {
		settle       func(*http.Request, ratelimit.Response) int64
		want, logged string
	}{
		"the store":          {costs(0), "away", "a request was not settled, and costs what it was charged before: away"},
		"Settle, by a panic": {func(*http.Request, ratelimit.Response) int64 { panic("broken") }, "Settle panicked", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := ratelimit.Must(memstore.New(memstore.Config{}))
			defer s.Close()
			rec := &recorder{Store: s}
			var o witness
			var log bytes.Buffer
			l := newLimiter(t, ratelimit.Config{Store: rec, Observe: o.observe, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			p := settled("api", ratelimit.PerHour(10), tt.settle)
			w := httptest.NewRecorder()
			recovering(l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				rec.Lock()
				defer rec.Unlock()
				rec.Fault = func([]store.Charge) error { return away }
				io.WriteString(w, "ok")
			}))).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			rec.Fault = nil
			if w.Code != 200 || w.Body.String() != "ok" || remaining(t, l, p) != 9 {
				t.Errorf("answered %d %q, and %d are left, want 9: the estimate stays", w.Code, w.Body, remaining(t, l, p))
			}
			if text := log.String(); !strings.Contains(text, tt.logged) || strings.Count(text, "\n") != min(1, len(tt.logged)) {
				t.Errorf("logged %q, want %q", text, tt.logged)
			}
			settlements := o.settlements()
			if len(settlements) != 1 {
				t.Fatalf("%d settlements", len(settlements))
			}
			if e := settlements[0]; e.Err == nil || !strings.Contains(e.Err.Error(), tt.want) || !e.Allowed || e.Estimates[0] != 1 || e.Results[0].Remaining != 9 {
				t.Errorf("%+v, estimates %v, want the state of the decision and an error %q", e.Event, e.Estimates, tt.want)
			}
		})
	}
}

func TestStackedLimitersSettleEachItsOwn(t *testing.T) {
	var o witness
	l := newLimiter(t, ratelimit.Config{Observe: o.observe})
	outer, inner := settled("outer", ratelimit.PerHour(10), costs(3)), settled("inner", ratelimit.PerHour(10), costs(7))
	r := chi.NewRouter()
	r.Use(l.Limit(outer))
	r.Route("/v1", func(r chi.Router) {
		r.With(l.Limit(inner)).Get("/items/{id}", okHandler.ServeHTTP)
	})
	path := func(r *http.Request) { r.URL.Path = "/v1/items/5" }
	wantStatuses(t, r, []int{200}, path)
	var got []string
	for _, e := range o.take() {
		got = append(got, strings.TrimSpace(e.Op+" on "+e.Route+" "+ofSettlement(e)))
	}
	want := []string{
		"request on GET /v1/items/{id}", "request on GET /v1/items/{id}",
		"settle on GET /v1/items/{id} inner(ip:192.0.2.1) 1->7", "settle on GET /v1/items/{id} outer(ip:192.0.2.1) 1->3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func ofSettlement(e seen) string {
	if e.Op == "settle" {
		return costsOf(e)
	}
	return ""
}

// When it is settled, the mux inside has matched the request.
func TestTheRouteOfASettlementAroundAMux(t *testing.T) {
	var o witness
	l := newLimiter(t, ratelimit.Config{Observe: o.observe})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", okHandler)
	get(l.Limit(settled("api", ratelimit.PerHour(10), costs(1)))(mux), func(r *http.Request) { r.URL.Path = "/items/5" })
	if e := o.settlements(); len(e) != 1 || e[0].Route != "GET /items/{id}" {
		t.Errorf("%+v", e)
	}
}
