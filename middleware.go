package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Config configures a [Limiter]. The zero value keeps buckets in memory, has no policies, writes X-RateLimit headers,
// and lets requests through when the store fails.
type Config struct {
	// Store keeps the buckets. Default: a [memstore.Store] that [Limiter.Close] closes.
	Store store.Store

	// Policies are enforced by Handler, all of them on each request, in one call of the Store. A request
	// that one policy denies takes no tokens of the others. It may be empty if you do not use Handler.
	Policies []Policy

	// Headers writes the rate limit headers of allowed and denied responses. Default [XRateLimit].
	// Package headers has other formats.
	Headers HeaderFunc

	// Deny answers denied requests, after the headers are set. It finds the reason with [FromContext].
	// Default: 429 in the form that the client accepts, for most a problem+json (RFC 9457) that names the
	// policies. For your own text or page use package denial.
	Deny http.Handler

	// Error answers requests that are refused for another reason than a limit. err wraps [ErrBadRequest]
	// if the key is malformed or ambiguous, and [ErrNoKey] if there is none. For other reasons, see
	// "Responses" in the package comment. Default: 400, 403 or 503 in the form of Deny, without the text
	// of err. Before Deny and Error are called, Cache-Control: no-store is set, and Retry-After for a 503.
	Error func(w http.ResponseWriter, r *http.Request, err error)

	// Skip, if set, exempts requests from [Limiter.Handler] and [Limiter.Limit], such as health checks:
	// they take no tokens and get no headers. Use package skip. It must not trust a header that clients can send.
	// Default: no request is exempt.
	Skip func(*http.Request) bool

	// Timeout bounds each call of the Store, by its context. A redisstore obeys it whatever the timeouts
	// of the Redis client are. A call that takes longer is a failure of the store. Default 100 ms. For a
	// process that lacks processor time, see
	// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/outages.md.
	Timeout time.Duration

	// MaxWaiting bounds the requests and calls of [Limiter.Wait] that wait at once in this Limiter.
	// Further ones do not wait, as if MaxWait were 0, and this is logged. One busy key gets at most half
	// of the places. Default 1024. See
	// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/waiting.md.
	MaxWaiting int

	// Observe, if set, is called once for each decision, before the request goes on or is answered, and
	// again when a request is settled: see [Event.Op]. It runs in the goroutine of the request, so it must
	// not block and must be safe for concurrent use. The context has the values of the request's context,
	// such as a trace, or those of the context that was given to Take. It does not have the request.
	// Package observe logs denials.
	Observe func(context.Context, *Event)

	// Logger gets errors and warnings. Default [slog.Default].
	//   - Error, each kind at most once a second: a decision failed, or a LimitFunc returned a malformed
	//     limit.
	//   - Warning, each kind at most once a minute: a request was refused with 400 or 403.
	//   - Warning, once: all clients of a proxy share one bucket. Only proxies in [PrivateNetworks] are
	//     noticed.
	//   - Warning, once for each policy: its LimitFunc does not depend on the key alone.
	//
	// A kind is the policy and the reason, without anything that a client sent. See
	// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/bounds.md.
	Logger *slog.Logger
}

const (
	defaultTimeout    = 100 * time.Millisecond
	defaultMaxWaiting = 1024
)

// A Limiter limits requests and calls. Make it with [New]. It is safe for concurrent use.
type Limiter struct {
	store    store.Store
	mounts   mounts
	headers  HeaderFunc
	deny     http.Handler
	refuse   func(http.ResponseWriter, *http.Request, error)
	skip     func(*http.Request) bool
	timeout  time.Duration
	waiting  *waitPlaces
	slots    slotQueues
	observe  func(context.Context, *Event)
	routers  subRouters // for Event.Route
	failures failure.Log
	refusals failure.Log     // 400 and 403
	proxied  atomic.Int32    // see detectProxy
	looks    looks           // for Usage
	own      *memstore.Store // nil: the caller set a Config.Store

	ofCalls, ofRequests deadline.Terms // of calls of the Store: without a request, and for one
}

// New returns a [Limiter], or an error that names every wrong field of cfg and what would be right. Without a
// [Config.Store], call [Limiter.Close] when the Limiter is no longer used.
func New(cfg Config) (*Limiter, error) {
	policies, err := compile("Policies", cfg.Policies, true)
	if cfg.Timeout < 0 {
		err = errors.Join(err, fmt.Errorf("Timeout %v: must not be negative", cfg.Timeout))
	}
	timeout := cmp.Or(cfg.Timeout, defaultTimeout)
	if slow := slowOf(cfg.Store); timeout > 0 && timeout < slow {
		err = errors.Join(err, fmt.Errorf("Timeout %v: must not be shorter than the fallback.Config.Slow of Store, %v, or a hung primary would never be given up", timeout, slow))
	}
	if cfg.MaxWaiting < 0 {
		err = errors.Join(err, fmt.Errorf("MaxWaiting %d: must be positive; 0 means the default of %d", cfg.MaxWaiting, defaultMaxWaiting))
	}
	if err != nil {
		return nil, fmt.Errorf("ratelimit: New: %w", err)
	}
	l := &Limiter{
		store:    cfg.Store,
		headers:  cfg.Headers,
		deny:     cfg.Deny,
		refuse:   cfg.Error,
		skip:     cfg.Skip,
		timeout:  timeout,
		waiting:  newWaitPlaces(cmp.Or(cfg.MaxWaiting, defaultMaxWaiting)),
		observe:  cfg.Observe,
		failures: failure.Log{Logger: cfg.Logger, Message: "ratelimit: decision failed"},
		refusals: failure.Log{Logger: cfg.Logger, Message: "ratelimit: request refused", Level: slog.LevelWarn, Every: refusalsEvery, MaxKinds: maxRefusals},

		ofCalls:    deadline.Terms{Timeout: timeout},
		ofRequests: deadline.Terms{Timeout: timeout, Detached: true},
	}
	l.mounts.begin(policies)
	if l.store == nil {
		l.own = Must(memstore.New(memstore.Config{})) // of which nothing is wrong
		l.store = l.own
	}
	if l.headers == nil {
		l.headers = XRateLimit
	}
	if l.deny == nil {
		l.deny = http.HandlerFunc(deny)
	}
	if l.refuse == nil {
		l.refuse = answer.Style{}.Refuse
	}
	return l, nil
}

// slowOf returns the Slow of the fallback.Store that s is or has inside, 0 if there is none.
func slowOf(s store.Store) time.Duration {
	for {
		if f, ok := s.(interface{ Slow() time.Duration }); ok {
			return f.Slow()
		}
		outer, ok := s.(interface{ Unwrap() store.Store })
		if !ok {
			return 0
		}
		s = outer.Unwrap()
	}
}

// Stats returns the counts of the Store, and how many places of [Config.MaxWaiting] are taken. It reads only memory of
// this process. Call it at most about once a second.
func (l *Limiter) Stats() store.Stats {
	stats := store.StatsOf(l.store)
	stats.Waiting, stats.MaxWaiting = l.waiting.taken()
	return stats
}

// Store returns the Store that the Limiter uses: [Config.Store], or the memory store that [New] has made.
func (l *Limiter) Store() store.Store { return l.store }

// Must returns v, or panics if err is not nil. Use it while a program starts, with New of this package or of a store:
// Must(New(cfg)).
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Close closes the memory store that [New] makes without a [Config.Store]. It does not close a Config.Store.
func (l *Limiter) Close() error {
	if l.own == nil {
		return nil
	}
	return l.own.Close()
}

// Handler returns next behind [Config.Policies], or behind the policies of the last [Limiter.Reload]. It panics if
// there are none.
//
// A connection that next takes over, such as a WebSocket, counts as one request. So mount a handler for HTTP/2 without
// TLS, such as h2c's, outside of the limiter.
//
// If next is a router with an [httputil.ReverseProxy] in it, wrap the proxy in
// [github.com/go-tokenbucket/ratelimit/headers.Merge]. Otherwise rate limit headers of the server behind it stand twice
// in a response, and a 103 or another informational response removes the limiter's.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	if len(l.mounts.handler.policies()) == 0 {
		panic("ratelimit: Handler: Config.Policies is empty: nothing would be limited")
	}
	return l.wrap(&l.mounts.handler, next)
}

// Limit returns middleware that enforces policies, in one call of the store:
//
//	r.With(limiter.Limit(login)).Post("/login", h)
//
// Calls of Handler and Limit can be stacked, as by r.Use and r.With. Each call decides separately, the outer one first.
// If an inner one denies the request, the tokens that the outer one took are not given back. A policy in two calls is
// charged twice.
//
// Limit panics on a malformed policy, with an error that names every wrong field. [Limiter.Reload] replaces its
// policies.
func (l *Limiter) Limit(policies ...Policy) func(http.Handler) http.Handler {
	compiled, err := compile("policies", policies, true)
	if len(policies) == 0 {
		err = errors.New("policies: must not be empty")
	}
	if err != nil {
		panic(fmt.Errorf("ratelimit: Limit: %w", err))
	}
	m := l.mounts.add(compiled)
	return func(next http.Handler) http.Handler { return l.wrap(m, next) }
}

// A limited is a handler behind a mount.
type limited struct {
	l     *Limiter
	mount *mount
	next  http.Handler
}

func (l *Limiter) wrap(m *mount, next http.Handler) *limited {
	if proxy, ok := next.(*httputil.ReverseProxy); ok {
		next = rateheader.Handler(proxy)
	}
	return &limited{l, m, next}
}

func (h *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := h.l
	if l.skip != nil && l.skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	policies := h.mount.policies()
	x := newRequestExchange(r.Context(), &h.mount.visitOf(l, r).terms)
	settles, slots := needAfterwards(policies)
	if slots {
		defer func() { x.held.done() }() // also if an observer, a HeaderFunc or next panics
	}
	err := l.decide(&x.exchange, r, policies, true)
	decided := l.answer(w, r, x, err)
	if decided == nil {
		return
	}
	defer returnLearned(r, decided) // also if next panics
	if x.held != nil {
		w = x.held.watch(w)
	}
	if settles {
		l.serveAndSettle(w, decided, &x.exchange, policies, h.next)
	} else {
		h.next.ServeHTTP(w, decided)
	}
}
