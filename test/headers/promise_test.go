package headers_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Clients that go by the headers alone are never disappointed, whatever the policies are.

func TestHeadersOfRandomPoliciesKeepWhatTheyPromise(t *testing.T) {
	for seed := range uint64(testsize.Of(150, 600)) {
		c := newClock()
		s := ratelimit.Must(memstore.New(memstore.Config{Clock: c.Now, MaxKeys: 100}))
		newEpisode(t, seed, s, false, c.Advance).run()
		s.Close()
		if t.Failed() {
			return
		}
	}
}

// In a bubble, where waiting takes no time.
func TestHeadersOfRandomPoliciesThatWaitKeepWhatTheyPromise(t *testing.T) {
	for seed := range uint64(testsize.Of(60, 300)) {
		synctest.Test(t, func(t *testing.T) {
			s := ratelimit.Must(memstore.New(memstore.Config{MaxKeys: 100}))
			defer s.Close()
			newEpisode(t, seed, s, true, time.Sleep).run()
		})
		if t.Failed() {
			return
		}
	}
}

// An episode is some requests of one client to some limiters.
type episode struct {
	*testing.T
	*rand.Rand
	seed     uint64
	sleep    func(time.Duration)
	policies map[string][]ratelimit.Policy // by name: several where stacked limiters have the same
	shadows  map[string]bool
	handler  http.Handler
	limiter  *ratelimit.Limiter
	decided  *ratelimit.Decision // about the last request
	delta    bool                // headers.DeltaSeconds, else headers.Spring
	locks    bool                // the only policy has a LockFor, and its key is blocked at times
}

func newEpisode(t *testing.T, seed uint64, s *memstore.Store, waits bool, sleep func(time.Duration)) *episode {
	e := &episode{
		T: t, Rand: rand.New(rand.NewPCG(seed, 5)), seed: seed, sleep: sleep,
		policies: make(map[string][]ratelimit.Policy), shadows: make(map[string]bool),
	}
	e.delta = e.IntN(2) == 0
	x := headers.Spring
	if e.delta {
		x = headers.DeltaSeconds
	}
	l := newLimiter(t, ratelimit.Config{
		Store:   s,
		Headers: headers.Join(headers.IETF, headers.Shadows, x),
		Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e.decided, _ = ratelimit.FromContext(r.Context())
			w.WriteHeader(http.StatusTooManyRequests)
		}),
	})
	e.limiter = l
	e.handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { e.decided, _ = ratelimit.FromContext(r.Context()) })
	layers := 1 + e.IntN(3)
	for layer := range layers {
		var policies []ratelimit.Policy
		count := 1 + e.IntN(3)
		for i := range count {
			p := ratelimit.Policy{
				Name:   fmt.Sprintf("p%d-%d", layer, i),
				Key:    ratelimit.Static(strconv.Itoa(layer)),
				Limit:  e.limit(waits),
				Cost:   costOf,
				Shadow: e.IntN(5) == 0,
			}
			if !p.Shadow && e.IntN(6) == 0 {
				p.Name = fmt.Sprintf("same-%d", i)
			}
			if waits && e.IntN(2) == 0 {
				p.MaxWait = time.Duration(1 + e.Int64N(int64(20*time.Second)))
			} else if layers == 1 && count == 1 && !p.Shadow { // a lock hides other policies from requests that cost 0
				e.locks = true
				p.LockFor = time.Microsecond + time.Duration(e.Int64N(int64(20*time.Second)))
			}
			if p.Shadow {
				e.shadows[p.Name] = true
			} else {
				e.policies[p.Name] = append(e.policies[p.Name], p)
			}
			policies = append(policies, p)
		}
		e.handler = l.Limit(policies...)(e.handler)
	}
	return e
}

func costOf(r *http.Request) int64 {
	n, _ := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
	return n
}

func (e *episode) limit(short bool) ratelimit.Limit {
	l := ratelimit.Limit{Rate: 1 + e.Int64N(100), Burst: 1 + e.Int64N(12)}
	pers := []time.Duration{time.Millisecond, 70 * time.Millisecond, time.Second, 7 * time.Second, time.Minute, time.Minute + time.Microsecond}
	if !short { // else the store would be swept for all that time
		if e.IntN(5) == 0 {
			return ratelimit.Quota(l.Burst, ratelimit.Hour+ratelimit.Period(e.IntN(4))).In([]string{"", "Europe/Berlin", "Asia/Kolkata"}[e.IntN(3)])
		}
		pers = append(pers, 1, 333*time.Nanosecond, time.Hour, 24*time.Hour, 30*24*time.Hour)
	}
	l.Per = pers[e.IntN(len(pers))]
	if l.Per < time.Microsecond {
		l.Rate, l.Burst = 1, 1000+e.Int64N(1000)
	}
	return l
}

// capacityOf returns the tokens of a full bucket.
func capacityOf(l ratelimit.Limit) int64 {
	if l.Period() != 0 {
		return l.Rate
	}
	return l.Burst
}

func (e *episode) run() {
	for range 12 {
		e.sleep(time.Duration(e.ExpFloat64() * float64(2*time.Second)))
		if e.locks && e.IntN(4) == 0 {
			if _, err := e.limiter.Block(e.Context(), ratelimit.Policy{Name: "p0-0"}, "static:0", time.Microsecond+time.Duration(e.Int64N(int64(9*time.Second))), ""); err != nil {
				e.Error(err)
			}
		}
		cost := int64(1)
		if e.IntN(3) == 0 {
			cost = e.Int64N(14)
		}
		a := e.request(cost)
		switch {
		case a.denied && a.retry == 0: // never
		case a.denied:
			asked := len(e.decided.Results)
			e.sleep(time.Duration(a.retry) * time.Second)
			if again := e.request(cost); again.denied && len(e.decided.Results) == asked { // and not by a limiter further inside
				e.fail("denied after its Retry-After of %d", a.retry)
			}
		case a.left > 40: // too many to try
		case a.left > 0 && e.IntN(2) == 0:
			e.spread(a)
		default:
			e.spend(a)
		}
		if e.Failed() {
			return
		}
	}
}

// spend makes as many requests as there are said to be left, and one more.
func (e *episode) spend(a answer) {
	last := a
	for i := range a.left {
		if last = e.request(1); !last.atOnce() {
			e.fail("%d are left, but the %dth was not allowed at once", a.left, i+1)
			return
		}
	}
	if a.left > 0 {
		if !e.locks { // a denial of a request that costs 0 tells only of the lock
			last = e.request(0) // now tells when there is one
		}
		if last.left != 0 {
			e.fail("%d were left, and after as many %d are", a.left, last.left)
			return
		}
	}
	if last.window > 1 { // rounded up, so that it is nearly over then
		e.sleep(time.Duration(last.window-1)*time.Second - time.Millisecond)
		if b := e.request(0); b.left != 0 {
			e.fail("none is left for %d s, but a second before %d are", last.window, b.left)
			return
		}
		e.sleep(time.Second + time.Millisecond)
	} else {
		if b := e.request(0); b.left != 0 {
			e.fail("none is left, but there are %d", b.left)
			return
		}
		e.sleep(time.Duration(last.window) * time.Second)
	}
	if b := e.request(1); !b.atOnce() {
		e.fail("none is left for %d s, and then one is not allowed at once", last.window)
	}
}

// spread makes twice as many requests as there are said to be left, as fast as they are said to come: as many
// only where policies of one name hide each other, or a quota may have more left than it has for a next period of that time.
func (e *episode) spread(a answer) {
	n := 2 * a.left
	if e.locks { // the last one may lock
		n = a.left
	}
	for _, namesakes := range e.policies {
		if len(namesakes) > 1 || namesakes[0].Limit.Period() != 0 {
			n = a.left
		}
	}
	for i := range n {
		if b := e.request(1); !b.atOnce() {
			e.fail("the %dth of %d, each after %v, was not allowed at once", i+1, a.left, a.every)
			return
		}
		e.sleep(a.every)
	}
}

// An answer is what a client learns of a response.
type answer struct {
	denied bool
	waited bool
	retry  int64         // Retry-After, 0 if there is none
	left   int64         // how many requests can be made at once
	window int64         // if none: in how many seconds one can
	every  time.Duration // in what distance requests can be made
}

func (a answer) atOnce() bool { return !a.denied && !a.waited }

// request makes a request, and checks its response.
func (e *episode) request(cost int64) answer {
	e.Helper()
	w := get(e.handler, with("Cost", strconv.FormatInt(cost, 10)))
	h := w.Header()
	if e.decided.Tightest() == nil {
		return e.withoutPolicies(w)
	}
	a := answer{denied: w.Code == http.StatusTooManyRequests, waited: h.Get("X-RateLimit-Waited") != "", left: 1 << 60}
	policies, limits := members(e.T, h, "RateLimit-Policy"), members(e.T, h, "RateLimit")

	var want []string
	never := false
	for _, r := range e.decided.Results {
		if !r.Shadow {
			want = append(want, r.Policy)
		}
		never = never || !r.Shadow && r.RetryAfter == ratelimit.Never
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for _, list := range [][]member{policies, limits} {
		var names []string
		for _, m := range list {
			names = append(names, m.Name)
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			e.fail("policies %v, want %v: %v", names, want, h)
		}
	}
	for i, m := range limits {
		q, w := policies[i].Q, policies[i].W
		if policies[i].Name != m.Name {
			e.fail("the lists differ in order: %v", h)
		}
		if !slices.ContainsFunc(e.policies[m.Name], func(p ratelimit.Policy) bool {
			return q == capacityOf(p.Limit) && (p.Limit.Period() != 0 || w == windowOf(p.Limit, q))
		}) {
			e.fail("q=%d and w=%d of %q", q, w, m.Name)
		}
		if m.R < 0 || m.R > q || w < 1 || m.T == 0 || m.T < 0 && !(never && m.R == 0) {
			e.fail("%v of q=%d", m, q)
		}
		a.left = min(a.left, m.R)
		if m.R == 0 {
			a.window = max(a.window, m.T)
		} else {
			a.every = max(a.every, (time.Duration(m.T)*time.Second+time.Duration(m.R)-1)/time.Duration(m.R))
		}
	}
	for _, m := range members(e.T, h, "X-RateLimit-Shadow") {
		if !e.shadows[m.Name] || m.R < 0 || m.T == 0 {
			e.fail("%v among the shadows", m)
		}
	}
	a.retry = e.retryAfter(h, a.denied, never)
	for _, m := range limits {
		if a.retry > 0 && m.T > a.retry {
			e.fail("%v is later than Retry-After %d", m, a.retry)
		}
	}
	e.checkXRateLimit(h, a)
	return a
}

// withoutPolicies checks a response to which none applied but shadows.
func (e *episode) withoutPolicies(w *httptest.ResponseRecorder) answer {
	e.Helper()
	for name := range w.Header() {
		if name != "X-Ratelimit-Shadow" {
			e.fail("without policies: %v", w.Header())
		}
	}
	return answer{left: 1 << 60}
}

func (e *episode) retryAfter(h http.Header, denied, never bool) int64 {
	e.Helper()
	text := h.Get("Retry-After")
	if !denied || never {
		if text != "" {
			e.fail("Retry-After %s", text)
		}
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n < 1 {
		e.fail("Retry-After %q", text)
	}
	return int64(n)
}

func (e *episode) checkXRateLimit(h http.Header, a answer) {
	e.Helper()
	number := func(name string) int64 {
		n, err := strconv.ParseUint(h.Get(name), 10, 53)
		if err != nil {
			e.fail("%s: %q", name, h.Values(name))
		}
		return int64(n)
	}
	tightest := e.decided.Tightest()
	remaining := number("X-RateLimit-Remaining")
	if e.delta {
		if limit := number("X-RateLimit-Limit"); limit != capacityOf(tightest.Limit) || remaining > limit || !a.denied && remaining != a.left {
			e.fail("%d of %d remain: %v", remaining, limit, h)
		}
		if reset := number("X-RateLimit-Reset"); (reset == 0) != (tightest.ResetAfter == 0) || tightest.Limit.Period() == 0 && reset > windowOf(tightest.Limit, tightest.Limit.Burst)+20 {
			e.fail("reset in %d s, of %v", reset, tightest)
		}
		return
	}
	burst, cost, rate := number("X-RateLimit-Burst-Capacity"), number("X-RateLimit-Requested-Tokens"), number("X-RateLimit-Replenish-Rate")
	parts := burst / capacityOf(tightest.Limit)
	if burst%capacityOf(tightest.Limit) != 0 || cost != parts*tightest.Cost || remaining != parts*tightest.Remaining {
		e.fail("not of one scale: %v", h)
	}
	if tightest.Limit.Period() != 0 {
		if rate != 0 || parts != 1 {
			e.fail("rate %d of a quota: %v", rate, h)
		}
		return
	}
	if exact := float64(parts*tightest.Limit.Rate) / tightest.Limit.Per.Seconds(); rate < 1 || float64(rate) < exact*(1-1e-6) || float64(rate) > exact*(1+1e-12) {
		e.fail("rate %d, want %v: %v", rate, exact, h)
	}
}

func (e *episode) fail(format string, args ...any) {
	e.Helper()
	e.Errorf("seed %d: "+format, append([]any{e.seed}, args...)...)
}
