package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

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
			request.leave()
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
				q.store.fault = func([]store.Charge) error {
					time.Sleep(time.Millisecond)
					return nil
				}
				tt.do(t, q)
				time.Sleep(time.Hour) // whoever waits has gone on
				synctest.Wait()
				var got []string
				for _, e := range q.events {
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

// generous is a Store that allows everything.
type generous struct{}

func (generous) Take(_ context.Context, _ []store.Charge, states []store.State) (bool, error) {
	for i := range states {
		states[i] = store.State{Allowed: true}
	}
	return true, nil
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
