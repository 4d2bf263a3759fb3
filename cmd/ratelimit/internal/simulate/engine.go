package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// An engine decides about one request after another. One goroutine uses it.
type engine struct {
	setup   setup
	index   map[string]int // of a policy, by name
	buckets *memstore.Store
	line    int64 // the time of the line, in microseconds since 1970
	now     int64 // the same, or the time at which a request has waited

	real, open http.Handler // the policies, on the buckets and on an open store
	both       bool         // a denial may hide what other limits would do

	current *passage // what is observed now
	once    passage  // of the line, if no policy lets requests wait
	freely  passage  // of the line, as if nothing denied it
	queue            // of those that wait
}

// A passage is the way of a request through the policies.
type passage struct {
	file   int
	number int64 // of the line
	time   int64 // of the line
	answer answer

	outcomes []outcome
	refusals []refusal
}

func (p *passage) begin(file int, entry *accesslog.Entry) {
	p.file, p.number, p.time = file, entry.Line, entry.Time
	p.forget()
	p.answer.begin(entry)
}

// forget drops what was decided, with its keys, which may be long.
func (p *passage) forget() {
	clear(p.outcomes)
	clear(p.refusals)
	p.outcomes, p.refusals = p.outcomes[:0], p.refusals[:0]
}

// An outcome is the result of one policy for a request.
type outcome struct {
	policy     int
	key        string
	at         int64 // when it was decided
	limit      ratelimit.Limit
	cost       int64
	final      int64 // the cost after Settle
	shadow     bool
	allowed    bool // by this policy
	passed     bool // the request went on after this limiter
	remaining  int64
	retryAfter time.Duration
	wait       time.Duration
}

// A refusal is an error of a policy's functions for a request.
type refusal struct {
	policy int // -1: not known
	err    error
	passed bool
}

// newEngine returns the engine of a setup. Its context is that of all requests.
func newEngine(s setup, buckets int) (*engine, error) {
	e := &engine{setup: s, index: make(map[string]int)}
	settles := false
	for i, p := range s.policies {
		e.index[p.Name] = i
		settles = settles || p.Settle != nil
		e.patient = e.patient || p.MaxWait > 0
	}
	e.virtual = virtualtime.With(context.Background(), e.wait)
	e.both = settles || len(s.policies) > 1
	e.buckets = memstore.New(memstore.Config{MaxKeys: buckets, Clock: func() time.Time { return time.UnixMicro(e.now) }})
	e.buckets.Close() // without its timer: what it forgets depends on the clock of the machine
	cfg := ratelimit.Config{
		Store:    shortening{e.buckets},
		Policies: s.listed,
		Headers:  func(http.Header, *ratelimit.Decision) {},
		Timeout:  time.Hour, // this machine may be busy
		Observe:  e.observe,
		Logger:   slog.New(slog.DiscardHandler),
	}
	end := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { e.current.answer.end() })
	mounted := func() (http.Handler, error) {
		l, err := ratelimit.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("simulate: %w", err)
		}
		return s.mount(l, end), nil
	}
	var err error
	if e.real, err = mounted(); err != nil {
		return nil, err
	}
	cfg.Store = open{}
	e.open, err = mounted()
	return e, err
}

// decide decides about the request of a line, to whose time the clock was moved before by advance. It returns nil if the
// request has to wait. freely is what is decided if nothing denies the request. Both are valid until the next call.
func (e *engine) decide(file int, entry *accesslog.Entry) (p *passage, freely []outcome) {
	if e.patient {
		p = e.send(file, entry)
	} else {
		p = &e.once
		p.begin(file, entry)
		e.current = p
		e.real.ServeHTTP(&p.answer, entry.Request)
	}
	if p != nil && (!e.both || !p.denied()) {
		return p, p.outcomes
	}
	e.current = &e.freely
	e.freely.begin(file, entry)
	r := entry.Request
	if p == nil { // the other way goes on later
		r = r.Clone(e.virtual)
	}
	r.Pattern = ""
	e.open.ServeHTTP(&e.freely.answer, r)
	return p, e.freely.outcomes
}

func (p *passage) denied() bool {
	for i := range p.outcomes {
		if !p.outcomes[i].allowed {
			return true
		}
	}
	return false
}

// observe is Config.Observe.
func (e *engine) observe(_ context.Context, event *ratelimit.Event) {
	if event.Op == "settle" {
		for i := range event.Results {
			e.settled(&event.Results[i])
		}
		return
	}
	if event.Err != nil {
		e.current.refusals = append(e.current.refusals, refusal{policy: e.policyOf(event.Err), err: event.Err, passed: event.Allowed})
	}
	for i := range event.Results {
		r := &event.Results[i]
		e.current.outcomes = append(e.current.outcomes, outcome{
			policy:     e.index[r.Policy],
			key:        r.Key,
			at:         e.now,
			limit:      r.Limit,
			cost:       r.Cost,
			final:      r.Cost,
			shadow:     r.Shadow,
			allowed:    r.Allowed,
			passed:     event.Allowed,
			remaining:  r.Remaining,
			retryAfter: r.RetryAfter,
			wait:       r.Wait,
		})
	}
}

// settled notes the final cost of a request, which meets each policy once.
func (e *engine) settled(r *ratelimit.Result) {
	policy := e.index[r.Policy]
	if i := slices.IndexFunc(e.current.outcomes, func(o outcome) bool { return o.policy == policy }); i >= 0 {
		e.current.outcomes[i].final = r.Cost
	}
}

// policyOf returns the policy whose function returned err, or -1.
func (e *engine) policyOf(err error) int {
	name, _, _ := strings.Cut(keyerr.Kind(err), ": ")
	if i, ok := e.index[name]; ok {
		return i
	}
	return -1
}

// kind is the class of an error of a policy's functions.
func (r *refusal) kind() string {
	switch {
	case errors.Is(r.err, ratelimit.ErrBadRequest):
		return "bad_key"
	case keyerr.IsNoKey(r.err):
		return "no_key"
	default:
		return "failed"
	}
}
