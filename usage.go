package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Usage returns a handler that answers GET with what the caller has left, as JSON, and charges nothing:
//
//	{"policies": [{"name": "api", "limit": 100000, "limit_text": "100000 per month",
//		"used": 1234, "remaining": 98766, "reset": 1796083200, "window": 2592000}]}
//
// A concurrency limit has no reset and no window, and used are the slots that are held.
//
// It shows the policies of [Limiter.Handler], or those that you pass. One that is mounted is found by its Name, and shown
// as it is in force there. Policies are left out that are Shadow or Hidden, or that exempt the caller. It calls Key and
// LimitFunc, so mount it inside the authentication that they need. Mount it outside of Handler, or it costs tokens.
//
// A request without a key is answered as by Handler. If the store fails, the answer is 503, and no stand-in answers. A bucket
// is read at most ten times a second. Usage panics without policies, and on a malformed one. For the fields, see
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/recipes.md#a-page-your-plan.
func (l *Limiter) Usage(policies ...Policy) http.Handler {
	compiled, err := compile("policies", policies, true)
	if len(policies) == 0 && len(l.mounts.handler.policies()) == 0 {
		err = errors.New("policies: must not be empty, because Config.Policies is")
	}
	if err != nil {
		panic(fmt.Errorf("ratelimit: Usage: %w", err))
	}
	return &usage{l, compiled}
}

// A usage is the handler of [Limiter.Usage].
type usage struct {
	l     *Limiter
	given []*policy // none: those of Handler
}

func (u *usage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	answer.NoStore(h)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	x := newRequestExchange(r.Context(), &u.l.ofRequests)
	if u.l.skip == nil || !u.l.skip(r) {
		if err := u.l.look(&x.exchange, r, u.policies()); err != nil {
			u.l.answer(w, r, x, err)
			return
		}
	}
	body := x.decision.usage()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the client may have left
	}
}

// policies returns the policies to show, as they are in force.
func (u *usage) policies() []*policy {
	all := u.given
	if len(all) == 0 {
		all = u.l.mounts.handler.policies()
	} else {
		all = u.l.mounts.named(all)
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *policy) bool { return p.Shadow || p.Hidden })
}

// named returns for each policy the one of that name that is mounted, or itself.
func (ms *mounts) named(policies []*policy) []*policy {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	mounted := ms.inUse()
	named := slices.Clone(policies)
	for i, p := range policies {
		for _, m := range mounted {
			if at := indexOf(m.policies(), p.Name); at >= 0 {
				named[i] = m.policies()[at]
				break
			}
		}
	}
	return named
}

// look reads the buckets of r under policies into x.decision. It decides nothing, and charges nothing.
func (l *Limiter) look(x *exchange, r *http.Request, policies []*policy) error {
	c := calls.Get().(*call)
	defer c.release()
	c.looks = true
	start := l.start(r, "peek")
	leftOut, err := l.addPolicies(c, x, r, policies, start)
	if err != nil {
		return err
	}
	looks, err := l.looks.read(x, c.charges, l.readBuckets)
	if err != nil {
		return l.fail(x, nil, true, 0, err, start)
	}
	d := &x.decision
	d.Allowed, d.At, d.Results = true, time.Now(), make([]Result, len(looks))
	for i, k := range looks {
		age := d.At.Sub(k.at)
		s := k.state
		s.Allowed, s.RetryAfter, s.ResetAfter = true, max(0, s.RetryAfter-age), max(0, s.ResetAfter-age)
		d.Results[i] = Result{Policy: c.charges[i].Policy, Key: c.charges[i].Key, Limit: c.applied[i].limit, State: s}
	}
	l.report(x, x.insertZeroRates(c, d.Results), 0, leftOut, start)
	return nil
}

// readBuckets asks the Store for the buckets of charges that take no tokens. The answer is for several requests, so it does
// not end with any of them.
func (l *Limiter) readBuckets(ctx context.Context, charges []store.Charge, states []store.State) error {
	limited := deadline.Context{Parent: context.WithoutCancel(ctx), Terms: &l.ofCalls}
	defer limited.End()
	if _, err := l.store.Take(store.WithoutStandIn(&limited), charges, states); err != nil {
		return err
	}
	if slices.ContainsFunc(states, func(s store.State) bool { return s.Degraded }) {
		return errDegraded
	}
	return nil
}

// A usageEntry is what the answer of a usage says of a policy.
type usageEntry struct {
	Name         string `json:"name"`
	Limit        int64  `json:"limit"`
	LimitText    string `json:"limit_text"`
	Used         int64  `json:"used"`
	Remaining    int64  `json:"remaining"`
	Reset        int64  `json:"reset,omitempty"`  // of a concurrency limit there is none
	Window       int64  `json:"window,omitempty"` // nor of a rate of 0
	BlockedUntil int64  `json:"blocked_until,omitempty"`
}

// usage returns the answer of a usage.
func (d *Decision) usage() []byte {
	entries := make([]usageEntry, 0, len(d.Results)) // not nil, which is null in JSON
	for i := range d.Results {
		r := &d.Results[i]
		e := usageEntry{Name: r.Policy, Limit: r.Limit.burst(), LimitText: r.Limit.String()}
		if !r.Limit.IsConcurrency() {
			e.Reset, e.Window = d.resetOf(r), d.windowOf(r)
		}
		e.Remaining = min(r.Remaining, e.Limit)
		e.Used = e.Limit - e.Remaining
		if r.Blocked {
			e.BlockedUntil = d.At.Add(r.RetryAfter + time.Second - 1).Unix()
		}
		entries = append(entries, e)
	}
	body, _ := json.Marshal(map[string]any{"policies": entries}) // these types have no errors
	return body
}

// windowOf returns how long an empty bucket takes to be full, or how long the present period of a quota is, in seconds.
func (d *Decision) windowOf(r *Result) int64 {
	limit, err := r.Limit.compile()
	switch {
	case err != nil: // a rate of 0
		return 0
	case !limit.IsQuota():
		return rateheader.Seconds(time.Duration(limit.Capacity/limit.Refill) * time.Microsecond)
	}
	return rateheader.PeriodLength(limit.Period, d.At, &r.State)
}
