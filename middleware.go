package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/failurelog"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Config configures a Limiter. The zero value keeps buckets in memory, has no policies of its own, writes
// X-RateLimit headers, and lets requests through when the store fails.
type Config struct {
	// Store keeps the buckets. Default: a memstore.Store that the Limiter closes.
	Store store.Store

	// Policies is what Handler enforces, all of them on each request, in one call of the Store: a
	// request that one of them denies spends nothing of the others. It may be empty where only Limit,
	// Decide and Take are used.
	Policies []Policy

	// Headers writes the rate limit headers of allowed and of denied responses. Package headers has other formats.
	// Default XRateLimit.
	Headers HeaderFunc

	// Deny answers denied requests, after the headers are set. It finds the reason with FromContext. Default: 429 in the
	// form that the client asks for, which for most is a problem+json that names the policies (RFC 9457). Package denial
	// has the same with your words and your page.
	Deny http.Handler

	// Error answers requests that are refused for another reason. errors.Is(err, ErrBadRequest) says that the key is
	// malformed or ambiguous, and errors.Is(err, ErrNoKey) that there is none. Otherwise a KeyFunc or a LimitFunc
	// failed, the store failed and a policy says FailClosed, the request had no time left, it was cancelled while it
	// waited for its turn, or the arguments of Admit are malformed. Default: 400, 403 or 503 without a
	// word of err, in the form of Deny. As for Deny, Cache-Control: no-store is set before.
	Error func(w http.ResponseWriter, r *http.Request, err error)

	// Skip, if set, exempts requests from Handler and Limit: they spend nothing and get no headers. It is
	// for health checks, for example: see package skip. A header that clients can send must not decide. Default: no request is exempt.
	Skip func(*http.Request) bool

	// Timeout bounds each call of the Store, by its context, which a redisstore obeys whatever the Redis
	// client's own timeouts are. What is not decided by then is a failure of the store. Default 100 ms.
	//
	// On a machine whose processors are busy, a redisstore waits for an answer up to that long again. A request
	// that gets none for want of processor time is refused, and so is one whose own deadline has passed, whatever
	// its policies say of failures: clients could cause both.
	Timeout time.Duration

	// MaxWaiting bounds how many requests and calls of Limiter.Wait wait for their turns at once in this
	// Limiter. A request that waits holds its connection and goroutine, about 23 KB, and a call of Wait 6 KB.
	// Those about which the Store is being asked count, too, if they might have to wait. Beyond MaxWaiting
	// nothing is reserved, as if Policy.MaxWait were 0. Default 1024.
	//
	// Each key of each policy takes a place only while it holds fewer than are free. So one busy key holds at
	// most half of MaxWaiting, two hold a third each, and a key that holds none gets any place that is free. A
	// request under several policies with a MaxWait counts for the key of each, and takes a place if one of them may
	// have one more. One client that has many keys can still take all places: eleven keys, one after the other, take
	// 1024. What is refused for want of a place is in the log.
	MaxWaiting int

	// Observe, if set, is told of each decision once, before the request goes on or is answered, by the
	// goroutine that serves it; it must be safe for concurrent use, and not block. The context is the
	// request's, or that of the call, such as Take: what the middleware before has put there, such as a trace,
	// can be had from it, but nothing of the request as such. Package observe has one that logs denials.
	Observe func(context.Context, *Event)

	// Logger gets errors and warnings. Default slog.Default().
	//   - Error, each kind at most once a second: a decision failed, or a LimitFunc returned a malformed limit.
	//   - Warning, each kind at most once a minute: a request was refused with 400 or 403.
	//   - Warning, once: all clients of a proxy share one bucket. Only a proxy with an address of PrivateNetworks is
	//     noticed.
	//   - Warning, once for each policy: its LimitFunc does not depend on the key alone.
	//
	// A kind is the policy and the reason, and nothing that a client sent: docs/bounds.md has the bounds.
	Logger *slog.Logger
}

const defaultTimeout = 100 * time.Millisecond

// A Limiter decides about requests. Make it with New. It is safe for concurrent use.
type Limiter struct {
	store    store.Store
	places   places
	headers  HeaderFunc
	deny     http.Handler
	refuse   func(http.ResponseWriter, *http.Request, error)
	skip     func(*http.Request) bool
	timeout  time.Duration
	waiting  *slots
	observe  func(context.Context, *Event)
	mounted  subRouters // for Event.Route
	failures failurelog.Log
	refusals failurelog.Log // 400 and 403
	proxied  proxyWatch
	own      *memstore.Store // nil: the store is the caller's

	ofCalls, ofRequests deadline.Terms // of the Store's calls, without a request and for one
}

// New returns a Limiter by cfg, or an error that names every field at fault and what would be right.
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
		err = errors.Join(err, fmt.Errorf("MaxWaiting %d: must be positive, or 0 for %d", cfg.MaxWaiting, defaultMaxWaiting))
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
		waiting:  newSlots(cmp.Or(cfg.MaxWaiting, defaultMaxWaiting)),
		observe:  cfg.Observe,
		failures: failurelog.Log{Logger: cfg.Logger, Message: "ratelimit: decision failed"},
		refusals: failurelog.Log{Logger: cfg.Logger, Message: "ratelimit: request refused", Level: slog.LevelWarn, Every: refusalsEvery, MaxKinds: maxRefusals},

		ofCalls:    deadline.Terms{Timeout: timeout},
		ofRequests: deadline.Terms{Timeout: timeout, Detached: true},
	}
	watchSwings(policies)
	l.places.begin(policies)
	if l.store == nil {
		l.own = memstore.New(memstore.Config{})
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

// slowOf returns how long a fallback.Store, which s is or has inside, lets its primary take; 0 if there is none.
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

// Must returns l, and panics if err is not nil: Must(New(cfg)) while wiring.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// Close closes the memory store that New made for want of a Config.Store. A Store of Config's is its
// owner's to close.
func (l *Limiter) Close() error {
	if l.own == nil {
		return nil
	}
	return l.own.Close()
}

// Handler wraps next in Config.Policies, or those of the last Reload. It panics if there are none: next would
// not be limited.
//
// A connection that next takes over, for WebSockets for example, is decided about once. So a handler that serves
// HTTP/2 without TLS, such as h2c's, belongs outside of the limiter.
//
// If next is a router with an httputil.ReverseProxy in it, wrap the proxy in headers.Merge. Otherwise, if the server
// behind it sends rate limit headers too, responses have each of them twice. And if that server sends a 103 or
// another informational response, the final response has no rate limit headers: a ReverseProxy forgets those that
// were set before.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	if len(l.places.list.policies()) == 0 {
		panic("ratelimit: Handler: Config.Policies is empty: nothing would be limited")
	}
	return l.wrap(&l.places.list, next)
}

// Limit returns middleware that enforces policies, in one call of the Store, for routes of their own:
//
//	r.With(limiter.Limit(login)).Post("/login", h)
//
// Limiters may be stacked, as by r.Use and r.With; each decides by itself, the outer ones first, and what
// they took stays taken if an inner one denies. A policy that stands in two of them is charged twice. It
// panics on a malformed policy, with an error that names every field at fault. Reload replaces the policies by name.
func (l *Limiter) Limit(policies ...Policy) func(http.Handler) http.Handler {
	compiled, err := compile("policies", policies, true)
	if len(policies) == 0 {
		err = errors.New("policies: must not be empty")
	}
	if err != nil {
		panic(fmt.Errorf("ratelimit: Limit: %w", err))
	}
	watchSwings(compiled)
	at := l.places.mount(compiled)
	return func(next http.Handler) http.Handler { return l.wrap(at, next) }
}

// wrap returns next behind the policies that are in force at a place.
func (l *Limiter) wrap(at *place, next http.Handler) http.Handler {
	if proxy, ok := next.(*httputil.ReverseProxy); ok {
		next = rateheader.Handler(proxy)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.skip != nil && l.skip(r) {
			next.ServeHTTP(w, r)
			return
		}
		policies := at.policies()
		x := l.newRequestExchange(r.Context())
		err := l.decide(&x.exchange, r, policies, true)
		decided := l.answer(w, r, x, err)
		if decided == nil {
			return
		}
		defer returnLearned(r, decided) // also if next panics
		if settles(policies) {
			l.serveAndSettle(w, decided, &x.exchange, policies, next)
		} else {
			next.ServeHTTP(w, decided)
		}
	})
}
