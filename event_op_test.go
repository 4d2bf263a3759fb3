package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

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

func TestTheStateOfASettlementIsThatAfterIt(t *testing.T) {
	var o witness
	l := newLimiter(t, ratelimit.Config{Observe: o.observe})
	more, same := settled("more", ratelimit.PerSecond(1).WithBurst(10), costs(30)), settled("same", ratelimit.PerHour(10), costs(1))
	shadow := settled("shadow", ratelimit.PerHour(10), costs(0))
	shadow.Shadow = true
	full := settled("full", ratelimit.PerHour(10), costs(0)) // was not charged
	full.Shadow, full.Cost = true, func(*http.Request) int64 { return 11 }
	get(l.Limit(more, perIP("plain", ratelimit.PerHour(10)), same, shadow, full)(okHandler))
	settlements := o.settlements()
	if len(settlements) != 1 {
		t.Fatalf("%d settlements", len(settlements))
	}
	e := settlements[0]
	if got, want := costsOf(e), "more(ip:192.0.2.1) 1->30 same(ip:192.0.2.1) 1->1 shadow(ip:192.0.2.1) 1->0"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if r := e.Results[0]; r.Remaining != 0 || r.ResetAfter < 29*time.Second || r.ResetAfter > 30*time.Second {
		t.Errorf("%+v, want a debt of 20 of a burst of 10", r)
	}
	if r := e.Results[1]; r.Remaining != 9 {
		t.Errorf("%+v, want the state of the decision", r)
	}
	if r := e.Results[2]; r.Remaining != 10 || !r.Shadow {
		t.Errorf("%+v, want a shadow that is full again", r)
	}
}

func TestARequestThatWasNotChargedHasNoSettlement(t *testing.T) {
	s := memstore.New(memstore.Config{})
	defer s.Close()
	rec := &recorder{Store: s}
	var o witness
	l := newLimiter(t, ratelimit.Config{Store: rec, Observe: o.observe, Logger: slog.New(slog.DiscardHandler)})
	p := settled("api", ratelimit.PerHour(1), costs(1))
	exempt := p
	exempt.LimitFunc = func(*http.Request) ratelimit.Limit { return ratelimit.Unlimited }
	wantStatuses(t, l.Limit(exempt)(okHandler), []int{200})
	wantStatuses(t, l.Limit(perIP("plain", ratelimit.PerHour(1)))(okHandler), []int{200})
	rec.fault = func([]store.Charge) error { return errors.New("away") }
	wantStatuses(t, l.Limit(p)(okHandler), []int{200})
	rec.fault = nil
	if _, err := l.Take(t.Context(), p, "ip:192.0.2.1", 1); err != nil {
		t.Fatal(err)
	}
	wantStatuses(t, l.Limit(p)(okHandler), []int{429})
	if got, want := ops(o.take()), []string{"request", "request", "request", "take", "request"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestASettlementThatFailsSaysSo(t *testing.T) {
	away := errors.New("away")
	for name, tt := range map[string]struct {
		settle func(*http.Request, ratelimit.Response) int64
		want   string
	}{
		"the store":          {costs(0), "away"},
		"Settle, by a panic": {func(*http.Request, ratelimit.Response) int64 { panic("broken") }, "Settle panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memstore.New(memstore.Config{})
			defer s.Close()
			rec := &recorder{Store: s}
			var o witness
			l := newLimiter(t, ratelimit.Config{Store: rec, Observe: o.observe, Logger: slog.New(slog.DiscardHandler)})
			h := l.Limit(settled("api", ratelimit.PerHour(10), tt.settle))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				rec.mu.Lock()
				defer rec.mu.Unlock()
				rec.fault = func([]store.Charge) error { return away }
			}))
			func() {
				defer func() { _ = recover() }()
				get(h)
			}()
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

func TestAConnectionThatIsTakenOverIsSettledInOneEvent(t *testing.T) {
	var o witness
	l := newLimiter(t, ratelimit.Config{Observe: o.observe})
	settles := func(_ *http.Request, r ratelimit.Response) int64 {
		if r.Hijacked {
			return 4
		}
		return r.Cost
	}
	limited := l.Limit(settled("ws", ratelimit.PerHour(10), settles))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		rw.Flush()
	}))
	served := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		limited.ServeHTTP(w, r)
	}))
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	<-served
	if e := o.settlements(); len(e) != 1 || costsOf(e[0]) != "ws(ip:127.0.0.1) 1->4" {
		t.Errorf("%d settlements, want one of 1->4: %+v", len(e), e)
	}
}
