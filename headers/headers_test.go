package headers_test

import (
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

func wantLines(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	if got := lines(t, h); !maps.Equal(got, want) {
		t.Errorf("headers %q, want %q", got, want)
	}
}

func result(name string, limit ratelimit.Limit, s store.State) ratelimit.Result {
	return ratelimit.Result{Policy: name, Key: "ip:192.0.2.1", Limit: limit, Cost: 1, State: s}
}

func shadowed(r ratelimit.Result) ratelimit.Result {
	r.Shadow = true
	return r
}

// The reset is rounded up to a second. A full bucket is reset now.
func TestDeltaSeconds(t *testing.T) {
	for reset, want := range map[time.Duration]string{0: "0", time.Microsecond: "1", time.Second: "1", time.Hour + time.Microsecond: "3601"} {
		h := http.Header{}
		headers.DeltaSeconds(h, &ratelimit.Decision{Allowed: true, At: time.Now(), Results: []ratelimit.Result{
			result("api", ratelimit.PerMinute(60).WithBurst(10), store.State{Allowed: true, Remaining: 3, ResetAfter: reset}),
		}})
		wantLines(t, h, map[string]string{"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Reset": want})
	}
}

func TestIETF(t *testing.T) {
	allowed := func(remaining int64, reset time.Duration) store.State {
		return store.State{Allowed: true, Remaining: remaining, ResetAfter: reset}
	}
	denied := func(retry, reset time.Duration) store.State {
		return store.State{RetryAfter: retry, ResetAfter: reset}
	}
	login := ratelimit.PerMinute(20).WithBurst(5) // a token every 3 s
	hour := ratelimit.PerHour(1000)
	yes := func(rs ...ratelimit.Result) ratelimit.Decision {
		return ratelimit.Decision{Allowed: true, Results: rs}
	}
	no := func(rs ...ratelimit.Result) ratelimit.Decision { return ratelimit.Decision{Results: rs} }
	degraded := allowed(7, 20*time.Second)
	degraded.Degraded = true
	emptyStandIn := allowed(0, 20*time.Second)
	emptyStandIn.Degraded = true
	costly := result("login", login, denied(6*time.Second, 12*time.Second))
	costly.Remaining = 1

	for name, c := range map[string]struct {
		decision         ratelimit.Decision
		policy, rateLimt string
	}{
		"what remains is told with the time in which it comes": {yes(result("login", login, allowed(4, 3*time.Second))), `"login";q=5;w=15`, `"login";r=4;t=12`},
		"the window is rounded up":                             {yes(result("api", ratelimit.PerSecond(3).WithBurst(10), allowed(4, time.Second))), `"api";q=10;w=4`, `"api";r=4;t=2`},
		"a window is at least a second":                        {yes(result("api", ratelimit.PerSecond(300).WithBurst(3), allowed(2, time.Millisecond))), `"api";q=3;w=1`, `"api";r=2;t=1`},
		"an empty bucket tells when the next token comes":      {yes(result("login", login, allowed(0, 14500*time.Millisecond))), `"login";q=5;w=15`, `"login";r=0;t=3`},
		"a bucket that was just emptied does too":              {yes(result("login", login, allowed(0, 15*time.Second))), `"login";q=5;w=15`, `"login";r=0;t=3`},
		"a debt tells when there is a token beyond it":         {yes(result("login", login, allowed(0, 24*time.Second))), `"login";q=5;w=15`, `"login";r=0;t=12`},
		"a denial tells when it would be allowed":              {no(result("login", login, denied(2500*time.Millisecond, 14500*time.Millisecond))), `"login";q=5;w=15`, `"login";r=0;t=3`},
		"of a denial nothing remains, also if a token does":    {no(costly), `"login";q=5;w=15`, `"login";r=0;t=6`},
		"no t in a denial is longer than Retry-After":          {no(result("hour", hour, allowed(900, 6*time.Minute)), result("login", login, denied(time.Second, 13*time.Second))), `"hour";q=1000;w=3600, "login";q=5;w=15`, `"hour";r=900;t=1, "login";r=0;t=1`},
		"what never is allowed has no t":                       {no(result("login", login, denied(ratelimit.Never, 3*time.Second)), result("hour", hour, denied(4*time.Second, time.Hour))), `"login";q=5;w=15, "hour";q=1000;w=3600`, `"login";r=0, "hour";r=0;t=4`},
		"every policy is there, but no shadow":                 {yes(shadowed(result("new", login, allowed(0, 0))), result("a", login, allowed(4, 0)), result("b", hour, allowed(9, 0))), `"a";q=5;w=15, "b";q=1000;w=3600`, `"a";r=4;t=12, "b";r=9;t=33`},
		"of two of one name the tighter is there":              {yes(result("a", hour, allowed(9, 0)), result("b", hour, allowed(1, 0)), result("a", login, allowed(4, 0))), `"b";q=1000;w=3600, "a";q=5;w=15`, `"b";r=1;t=4, "a";r=4;t=12`},
		"of two that are equal one is there":                   {yes(result("a", login, allowed(4, 0)), result("a", login, allowed(4, 0))), `"a";q=5;w=15`, `"a";r=4;t=12`},
		"a shadow does not stand in for one of its name":       {yes(shadowed(result("a", login, allowed(0, 0))), result("a", hour, allowed(9, 0))), `"a";q=1000;w=3600`, `"a";r=9;t=33`},
		"a stand-in has no more left than all":                 {yes(result("login", login, degraded)), `"login";q=5;w=15`, `"login";r=5;t=15`},
		"an empty stand-in tells when it is full":              {yes(result("login", login, emptyStandIn)), `"login";q=5;w=15`, `"login";r=0;t=20`},
		"a slow limit":                            {yes(result("m", ratelimit.Every(30*24*time.Hour).WithBurst(3), allowed(2, time.Hour))), `"m";q=3;w=7776000`, `"m";r=2;t=5184000`},
		"numbers have no more than 15 digits":     {yes(result("m", ratelimit.PerSecond(1<<52), allowed(1<<52, 0))), `"m";q=999999999999999;w=1`, `"m";r=999999999999999;t=1`},
		"a limit that is none does not harm":      {yes(ratelimit.Result{Policy: "m", State: allowed(1, 0)}), `"m";q=0;w=1`, `"m";r=0;t=1`},
		"a request that costs nothing is allowed": {yes(ratelimit.Result{Policy: "login", Limit: login, State: allowed(0, 15*time.Second)}), `"login";q=5;w=15`, `"login";r=0;t=3`},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			headers.IETF(h, &c.decision)
			wantLines(t, h, map[string]string{"Ratelimit-Policy": c.policy, "Ratelimit": c.rateLimt})
		})
	}
	h := http.Header{}
	d := yes(shadowed(result("new", login, allowed(0, 0))))
	if headers.IETF(h, &d); len(h) != 0 {
		t.Errorf("without an enforced policy: %v", h)
	}
	d = yes(result("login", login, store.State{Allowed: true, Degraded: true}))
	headers.IETF(h, &d)
	wantLines(t, h, map[string]string{"Ratelimit-Policy": `"login";q=5;w=15`})
}

func TestSpring(t *testing.T) {
	prime := time.Duration(2_305_843_009_213_693_951) // nanoseconds, 73 years
	for name, c := range map[string]struct {
		limit           ratelimit.Limit
		remaining, cost int64
		want            [4]string // remaining, rate, capacity, requested
	}{
		"whole tokens a second are told as they are":       {ratelimit.PerSecond(10).WithBurst(20), 7, 1, [4]string{"7", "10", "20", "1"}},
		"so are those that come many a minute":             {ratelimit.PerMinute(120).WithBurst(5), 4, 2, [4]string{"4", "2", "5", "2"}},
		"one a minute is as Spring's manual configures it": {ratelimit.PerMinute(1), 0, 1, [4]string{"0", "1", "60", "60"}},
		"90 a minute are three half tokens a second":       {ratelimit.PerMinute(90).WithBurst(10), 3, 2, [4]string{"6", "3", "20", "4"}},
		"a rate of nanoseconds":                            {ratelimit.Limit{Rate: 7, Per: 3 * time.Nanosecond, Burst: 10_000_000}, 10, 1, [4]string{"30", "7000000000", "30000000", "3"}},
		"a cost below zero, which never is allowed":        {ratelimit.PerSecond(1), 1, math.MaxInt64, [4]string{"1", "1", "1", "9007199254740992"}},
		"parts that are too many":                          {ratelimit.Limit{Rate: 1 << 40, Per: prime, Burst: 1 << 40}, 1 << 39, 1, [4]string{"4503599627370496", "3906250", "9007199254740992", "8192"}},
		"parts of which too many come a second":            {ratelimit.Limit{Rate: 50_000_000_000, Per: 7 * time.Microsecond}, 3, 1, [4]string{"3", "7142857142857142", "50000000000", "1"}},
		"a rate that is too high":                          {ratelimit.Limit{Rate: 1 << 52, Per: time.Microsecond}, 5, 1, [4]string{"5", "9007199254740992", "4503599627370496", "1"}},
		"a stand-in has no more left than all":             {ratelimit.PerSecond(10), 20, 1, [4]string{"10", "10", "10", "1"}},
		"a limit that is none does not harm":               {ratelimit.Limit{}, 0, 1, [4]string{"0", "0", "0", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			r := result("api", c.limit, store.State{Allowed: true, Remaining: c.remaining})
			r.Cost = c.cost
			headers.Spring(h, &ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{r, shadowed(result("new", c.limit, store.State{Allowed: true}))}})
			wantLines(t, h, map[string]string{
				"X-Ratelimit-Remaining":        c.want[0],
				"X-Ratelimit-Replenish-Rate":   c.want[1],
				"X-Ratelimit-Burst-Capacity":   c.want[2],
				"X-Ratelimit-Requested-Tokens": c.want[3],
			})
		})
	}
}

func TestShadowPoliciesShowsShadowsAlone(t *testing.T) {
	second := ratelimit.PerSecond(1).WithBurst(5)
	h := http.Header{}
	headers.Join(headers.Shadows)(h, &ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{
		result("api", second, store.State{Allowed: true, Remaining: 4, ResetAfter: time.Second}),
		shadowed(result("candidate", second, store.State{RetryAfter: 3 * time.Second, ResetAfter: 7 * time.Second})),
		shadowed(result("unknown", second, store.State{Allowed: true, Degraded: true})),
		shadowed(result("other", second, store.State{Allowed: true, Remaining: 2, ResetAfter: 3 * time.Second})),
	}})
	wantLines(t, h, map[string]string{"X-Ratelimit-Shadow": `"candidate";r=0;t=3, "other";r=2;t=2`})

	h = http.Header{}
	headers.Shadows(h, &ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{result("api", second, store.State{Allowed: true})}})
	wantLines(t, h, map[string]string{})
}

// Remaining is in tokens in one and in parts of them in the other.
func TestOfDialectsThatShareAHeaderTheLastIsSeenAlone(t *testing.T) {
	spring := []string{"X-Ratelimit-Burst-Capacity", "X-Ratelimit-Remaining", "X-Ratelimit-Replenish-Rate", "X-Ratelimit-Requested-Tokens"}
	plain := []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	d := ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{result("api", ratelimit.PerMinute(1), store.State{Allowed: true, Remaining: 1})}}
	for _, c := range []struct {
		headers   ratelimit.HeaderFunc
		want      []string
		remaining string
	}{
		{headers.Join(ratelimit.XRateLimit, headers.Spring), spring, "60"},
		{headers.Join(headers.Spring, ratelimit.XRateLimit), plain, "1"},
		{headers.Join(headers.Spring, headers.DeltaSeconds), plain, "1"},
	} {
		h := http.Header{}
		c.headers(h, &d)
		if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, c.want) || h.Get("X-RateLimit-Remaining") != c.remaining {
			t.Errorf("%v, want %v and %s remaining", h, c.want, c.remaining)
		}
	}
}

func TestJoinAndMergePanicOfNil(t *testing.T) {
	checkPanic(t, func() { headers.Join() }, "headers: Join: must have at least one")
	checkPanic(t, func() { headers.Join(headers.IETF, nil) }, "headers: Join: no HeaderFunc may be nil")
	checkPanic(t, func() { headers.Merge(nil) }, "headers: Merge")
}

func TestDialectsKeepsWhatItWasGiven(t *testing.T) {
	fs := []ratelimit.HeaderFunc{headers.None}
	headers := headers.Join(fs...)
	fs[0] = nil
	headers(http.Header{}, &ratelimit.Decision{})
}

// A response may be in several dialects, and a Decision be written more than once: none writes over another.
func TestHeadersOfOneDecisionDoNotShareRoom(t *testing.T) {
	d := ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{result("api", ratelimit.PerMinute(1), store.State{Allowed: true, Remaining: 1})}}
	first, second := http.Header{}, http.Header{}
	headers.DeltaSeconds(first, &d)
	was := lines(t, first.Clone())
	d.Results[0].Remaining = 0
	headers.DeltaSeconds(second, &d)
	headers.IETF(second, &d)
	wantLines(t, first, was)
}

// safelisted are headers that a script may read anyway, or that are for the browser.
var safelisted = []string{"Cache-Control", "Content-Length", "Content-Type", "X-Content-Type-Options"}

func TestExposedHeadersAreAllThatTellLimits(t *testing.T) {
	seen := make(map[string]bool)
	for _, headers := range []ratelimit.HeaderFunc{
		headers.None, ratelimit.XRateLimit, headers.DeltaSeconds, headers.Spring,
		headers.Join(headers.IETF, headers.Shadows),
	} {
		shadow := perIP("new", ratelimit.PerHour(1))
		shadow.Shadow = true
		waiting := perIP("api", ratelimit.PerSecond(1000).WithBurst(1))
		waiting.MaxWait = time.Minute
		once := perIP("once", ratelimit.PerHour(3))
		closed := perIP("fails", ratelimit.PerHour(1))
		closed.FailClosed = true
		l := newLimiter(t, ratelimit.Config{Headers: headers})
		failed := newLimiter(t, ratelimit.Config{Headers: headers, Store: failing(func() error { return io.ErrUnexpectedEOF })})
		h := l.Limit(waiting, once, shadow)(okHandler)
		var responses []*httptest.ResponseRecorder
		for range 4 { // of which one waits, and the last is denied
			responses = append(responses, get(h))
		}
		responses = append(responses, get(failed.Limit(closed)(okHandler)))
		for _, w := range responses {
			for name := range w.Header() {
				seen[name] = true
			}
		}
	}
	for _, name := range safelisted {
		delete(seen, name)
	}
	var exposed []string
	for _, name := range headers.Exposed {
		exposed = append(exposed, http.CanonicalHeaderKey(name))
	}
	slices.Sort(exposed)
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, exposed) {
		t.Errorf("responses have %v, exposed are %v", got, exposed)
	}
}

// BenchmarkDialects is the whole middleware on memory, with each dialect and for the rest alike.
func BenchmarkDialects(b *testing.B) {
	for _, dialect := range []struct {
		name    string
		headers ratelimit.HeaderFunc
	}{
		{"None", headers.None},
		{"XRateLimit", ratelimit.XRateLimit},
		{"DeltaSeconds", headers.DeltaSeconds},
		{"IETF", headers.IETF},
		{"Spring", headers.Spring},
	} {
		b.Run(dialect.name, func(b *testing.B) {
			l := ratelimit.Must(ratelimit.New(ratelimit.Config{
				Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1_000_000_000))},
				Headers:  dialect.headers,
			}))
			defer l.Close()
			benchmarkHandler(b, l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		})
	}
}

// BenchmarkStacked is a limiter inside of another, whose headers stand there already.
func BenchmarkStacked(b *testing.B) {
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(1_000_000_000))},
	}))
	defer l.Close()
	inner := l.Limit(perIP("search", ratelimit.PerHour(1_000_000_000)))
	benchmarkHandler(b, l.Handler(inner(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
}

func benchmarkHandler(b *testing.B, h http.Handler) {
	r := httptest.NewRequest("GET", "/", nil)
	w := headerWriter{}
	b.ReportAllocs()
	for b.Loop() {
		clear(w)
		h.ServeHTTP(w, r)
	}
}

// A headerWriter is a response of which only the header is looked at.
type headerWriter http.Header

func (w headerWriter) Header() http.Header         { return http.Header(w) }
func (w headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w headerWriter) WriteHeader(int)             {}
