package simulate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/virtualtime"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// An engine decides about one request after another. One goroutine uses it.
type engine struct {
	index   map[string]int // of a policy, by name
	buckets *memstore.Store
	line    int64 // the time of the line, in microseconds since 1970
	now     int64 // the same, or the time at which a request has waited
	virtual context.Context

	real, open http.Handler // the policies, on the buckets and on an open store

	current *passage // what is observed now
	freely  passage  // of the line, as if nothing denied it
	queue            // of requests that wait
}

// A passage is the way of a request through the policies.
type passage struct {
	file   string
	number int64 // of the line
	time   int64 // of the line
	answer answer

	outcomes []outcome
	refusals []refusal
}

// begin makes p the passage of a line. It uses the memory of the one before.
func (p *passage) begin(file string, entry *accesslog.Entry) {
	header := p.answer.header
	clear(header)
	if header == nil {
		header = make(http.Header)
	}
	*p = passage{
		file: file, number: entry.Line, time: entry.Time, outcomes: p.outcomes[:0], refusals: p.refusals[:0],
		answer: answer{header: header, logged: entry.Status, loggedBytes: entry.Bytes},
	}
}

// An outcome is the result of one policy for a request. Its key is a short one.
type outcome struct {
	ratelimit.Result
	policy int
	at     int64 // when it was decided
	final  int64 // the cost after Settle
	passed bool  // the request went on after this limiter
}

// A refusal is an error of a policy's functions for a request.
type refusal struct {
	policy int // -1: not known
	err    error
	passed bool
}

// A bounded store keeps no long keys, because clients choose the length of some. It takes no slots.
type bounded struct{ store.Store }

func (s bounded) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges = keyname.ShortCharges(charges)
	if slices.ContainsFunc(charges, ofSlots) {
		charges = slices.Clone(charges)
		for i := range charges {
			if ofSlots(charges[i]) {
				charges[i].Cost = 0
			}
		}
	}
	return s.Store.Take(ctx, charges, states)
}

func ofSlots(c store.Charge) bool { return c.Limit.IsConcurrency() }

// An open store allows everything. Its limiter reports what a request would be charged if nothing denied it.
type open struct{}

func (open) Take(_ context.Context, charges []store.Charge, states []store.State) (bool, error) {
	for i := range charges {
		states[i] = store.State{Allowed: true, Remaining: charges[i].Limit.Capacity / charges[i].Limit.Unit}
	}
	return true, nil
}

// newEngine returns the engine of a setup. Its context is that of all requests.
func newEngine(s setup, buckets int) (*engine, error) {
	e := &engine{index: make(map[string]int)}
	for i, p := range s.policies {
		e.index[p.Name] = i
	}
	e.virtual = virtualtime.With(context.Background(), func(d time.Duration) { e.walking.sleep(d) })
	var err error
	e.buckets, err = memstore.New(memstore.Config{MaxKeys: buckets, Clock: func() time.Time { return time.UnixMicro(e.now) }})
	if err != nil {
		return nil, err
	}
	e.buckets.Close() // without its timer: what it forgets depends on the clock of the machine
	cfg := ratelimit.Config{
		Store:    bounded{e.buckets},
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
			return nil, err
		}
		return s.mount(l, end), nil
	}
	if e.real, err = mounted(); err != nil {
		return nil, err
	}
	cfg.Store = open{}
	e.open, err = mounted()
	return e, err
}

// decide decides about the request of a line, to whose time the clock was moved before by advance. It returns nil if the
// request has to wait. freely is what is decided if nothing denies the request. Both are valid until the next call.
func (e *engine) decide(file string, entry *accesslog.Entry) (p *passage, freely []outcome) {
	p = e.send(file, entry)
	if p != nil && !slices.ContainsFunc(p.outcomes, func(o outcome) bool { return !o.Allowed }) {
		return p, p.outcomes
	}
	e.freely.begin(file, entry)
	e.current = &e.freely
	r := entry.Request.WithContext(e.virtual) // the other one may go on later
	r.Pattern = ""
	e.open.ServeHTTP(&e.freely.answer, r)
	return p, e.freely.outcomes
}

// observe is Config.Observe.
func (e *engine) observe(_ context.Context, event *ratelimit.Event) {
	p := e.current
	if event.Op == "settle" { // a request meets each policy once
		for _, r := range event.Results {
			if i := slices.IndexFunc(p.outcomes, func(o outcome) bool { return o.Policy == r.Policy }); i >= 0 {
				p.outcomes[i].final = r.Cost
			}
		}
		return
	}
	if event.Err != nil {
		p.refusals = append(p.refusals, refusal{policy: e.policyOf(event.Err), err: event.Err, passed: event.Allowed})
	}
	turn := time.Duration(0)
	for _, r := range event.Results {
		if !r.Shadow {
			turn = max(turn, r.Wait)
		}
	}
	for _, r := range event.Results {
		policy, simulated := e.index[r.Policy]
		if !simulated {
			continue
		}
		r.Key = keyname.Short(r.Key)
		if r.Limit.Period() != 0 && r.Allowed && !r.Shadow {
			r.Wait = event.Waited - turn // for the next period, of which the bucket knows nothing
		}
		p.outcomes = append(p.outcomes, outcome{Result: r, policy: policy, at: e.now, final: r.Cost, passed: event.Allowed})
	}
}

// policyOf returns the policy whose function returned err, or -1.
func (e *engine) policyOf(err error) int {
	name, _, _ := strings.Cut(failure.Kind(err), ": ")
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
	case failure.IsNoKey(r.err):
		return "no_key"
	default:
		return "failed"
	}
}
