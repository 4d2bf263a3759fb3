package headers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// setting sets headers before next, as a limiter of others outside of ours, or inside.
func setting(headers map[string]string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// frozen returns a Limiter on memory for which no time passes, and which writes IETF and DeltaSeconds.
func frozen(t *testing.T, headers ratelimit.HeaderFunc) *ratelimit.Limiter {
	t.Helper()
	s := ratelimit.Must(memstore.New(memstore.Config{Clock: newClock().Now}))
	t.Cleanup(func() { s.Close() })
	return newLimiter(t, ratelimit.Config{Store: s, Headers: headers})
}

var both = headers.Join(headers.IETF, headers.DeltaSeconds)

func TestHeadersThatStandThereAlreadyAreMerged(t *testing.T) {
	login := perIP("login", ratelimit.PerMinute(20).WithBurst(5)) // 4 remain
	for name, c := range map[string]struct {
		headers       ratelimit.HeaderFunc
		outside, want map[string]string
	}{
		"less remains of ours": {headers.DeltaSeconds,
			map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "7", "X-RateLimit-Resource": "core"},
			map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3"}},
		"less remains of theirs": {headers.DeltaSeconds,
			map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "7", "X-RateLimit-Resource": "core"},
			map[string]string{"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Reset": "7", "X-Ratelimit-Resource": "core"}},
		"theirs has no number": {headers.DeltaSeconds,
			map[string]string{"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "-1", "X-RateLimit-Used": "7"},
			map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3"}},
		"lists hold all": {both,
			map[string]string{"RateLimit-Policy": `"edge";q=100;w=60`, "RateLimit": `"edge";r=3;t=2`},
			map[string]string{
				"Ratelimit-Policy": `"edge";q=100;w=60, "login";q=5;w=15`, "Ratelimit": `"edge";r=3;t=2, "login";r=4;t=12`,
				"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3"}},
		"a list alone": {headers.IETF,
			map[string]string{"RateLimit": `"edge";r=3;t=2`},
			map[string]string{"Ratelimit-Policy": `"login";q=5;w=15`, "Ratelimit": `"edge";r=3;t=2, "login";r=4;t=12`}},
		"policies alone": {headers.IETF,
			map[string]string{"RateLimit-Policy": `"edge";q=100;w=60`},
			map[string]string{"Ratelimit-Policy": `"edge";q=100;w=60, "login";q=5;w=15`, "Ratelimit": `"login";r=4;t=12`}},
		"what is no list would spoil ours": {headers.IETF,
			map[string]string{"RateLimit-Policy": "100;w=60", "RateLimit": "limit=100, remaining=50, reset=50"},
			map[string]string{"Ratelimit-Policy": `"login";q=5;w=15`, "Ratelimit": `"login";r=4;t=12`}},
		"what we do not write stays": {headers.None,
			map[string]string{"RateLimit": "limit=100, remaining=50, reset=50", "X-RateLimit-Remaining": "a few", "X-RateLimit-Waited": "0.5", "Retry-After": "7", "Vary": "Origin"},
			map[string]string{"Ratelimit": "limit=100, remaining=50, reset=50", "X-Ratelimit-Remaining": "a few", "X-Ratelimit-Waited": "0.5", "Retry-After": "7", "Vary": "Origin"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := setting(c.outside, frozen(t, c.headers).Limit(login)(nothing))
			wantLines(t, get(h).Header(), c.want)
		})
	}
}

// The limiters inside know what the outer one has merged, and what of that is its own.
func TestWhatStandsThereAlreadyIsMergedOnce(t *testing.T) {
	l := frozen(t, both)
	other := newLimiter(t, ratelimit.Config{Headers: headers.DeltaSeconds})
	edge := map[string]string{"RateLimit-Policy": `"edge";q=100;w=60`, "RateLimit": `"edge";r=3;t=2`, "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "3"}
	h := setting(edge, l.Limit(perIP("outer", ratelimit.PerMinute(20).WithBurst(5)))(
		l.Limit(perIP("inner", ratelimit.PerMinute(20).WithBurst(4)))(
			other.Limit(perIP("other", ratelimit.PerMinute(60).WithBurst(10)))(nothing))))
	for i, want := range []map[string]string{
		{"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "3", "Ratelimit": `"edge";r=3;t=2, "outer";r=4;t=12, "inner";r=3;t=9`},
		{"X-Ratelimit-Limit": "4", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": "6", "Ratelimit": `"edge";r=3;t=2, "outer";r=3;t=9, "inner";r=2;t=6`},
	} {
		want["Ratelimit-Policy"] = `"edge";q=100;w=60, "outer";q=5;w=15, "inner";q=4;w=12`
		t.Run(fmt.Sprint(i), func(t *testing.T) { wantLines(t, get(h).Header(), want) })
	}
}

func TestADenialHasTheNumbersOfAllThatStandOutside(t *testing.T) {
	l := frozen(t, both)
	edge := map[string]string{"RateLimit": `"edge";r=3;t=2`, "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "3", "Retry-After": "9000"}
	h := setting(edge, l.Limit(perIP("outer", ratelimit.PerMinute(20).WithBurst(5)))(
		l.Limit(perIP("inner", ratelimit.PerMinute(20).WithBurst(1)))(nothing)))
	get(h)
	w := get(h)
	for _, name := range safelisted {
		w.Header().Del(name)
	}
	wantLines(t, w.Header(), map[string]string{
		"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "3", "Retry-After": "3",
		"Ratelimit-Policy": `"outer";q=5;w=15, "inner";q=1;w=3`, "Ratelimit": `"edge";r=3;t=2, "outer";r=3;t=3, "inner";r=0;t=3`,
	})
}

// However limiters are mounted, a response has each header once and each policy in it.
func TestStackedLimitersWriteEachHeaderOnce(t *testing.T) {
	limit := ratelimit.PerMinute(60).WithBurst(10)
	for name, mount := range map[string]func(l *ratelimit.Limiter) http.Handler{
		"Handler and Limit": func(l *ratelimit.Limiter) http.Handler {
			return l.Handler(l.Limit(perIP("b", limit))(l.Limit(perIP("c", limit))(nothing)))
		},
		"Use and With": func(l *ratelimit.Limiter) http.Handler {
			r := chi.NewRouter()
			r.Use(l.Handler, l.Limit(perIP("b", limit)))
			r.With(l.Limit(perIP("c", limit))).Get("/", nothing)
			return r
		},
		"Mount": func(l *ratelimit.Limiter) http.Handler {
			sub := chi.NewRouter()
			sub.Use(l.Limit(perIP("b", limit)))
			sub.With(l.Limit(perIP("c", limit))).Get("/", nothing)
			r := chi.NewRouter()
			r.Use(l.Handler)
			r.Mount("/", sub)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := ratelimit.Must(memstore.New(memstore.Config{Clock: newClock().Now}))
			defer s.Close()
			h := mount(newLimiter(t, ratelimit.Config{Store: s, Headers: both, Policies: []ratelimit.Policy{perIP("a", limit)}}))
			wantLines(t, get(h).Header(), map[string]string{
				"Ratelimit-Policy":  `"a";q=10;w=10, "b";q=10;w=10, "c";q=10;w=10`,
				"Ratelimit":         `"a";r=9;t=9, "b";r=9;t=9, "c";r=9;t=9`,
				"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "1",
			})
		})
	}
}

func TestALimiterInsideMayHaveAnotherDialect(t *testing.T) {
	slow, fast := ratelimit.PerMinute(20).WithBurst(5), ratelimit.PerMinute(1).WithBurst(3)
	for name, c := range map[string]struct {
		outer, inner ratelimit.HeaderFunc
		want         map[string]string
	}{
		"one beside the other": {headers.DeltaSeconds, headers.IETF, map[string]string{
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3",
			"Ratelimit-Policy": `"outer";q=5;w=15, "inner";q=3;w=180`, "Ratelimit": `"outer";r=4;t=12, "inner";r=2;t=120`}},
		"Spring inside of XRateLimit": {ratelimit.XRateLimit, headers.Spring, map[string]string{
			"X-Ratelimit-Remaining": "120", "X-Ratelimit-Replenish-Rate": "1", "X-Ratelimit-Burst-Capacity": "180", "X-Ratelimit-Requested-Tokens": "60"}},
		"XRateLimit inside of Spring": {headers.Spring, headers.DeltaSeconds, map[string]string{
			"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": "60"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := frozen(t, c.outer).Limit(perIP("outer", slow))(frozen(t, c.inner).Limit(perIP("inner", fast))(nothing))
			wantLines(t, get(h).Header(), c.want)
		})
	}
}

func TestMerge(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	soon, later := in(time.Minute), in(time.Hour)
	type set = map[string][]string
	for name, c := range map[string]struct{ outer, inner, want set }{
		"nothing stands there":                                      {nil, set{"X-Ratelimit-Remaining": {"1", "2"}}, set{"X-Ratelimit-Remaining": {"1", "2"}}},
		"next brings nothing":                                       {set{"X-Ratelimit-Remaining": {"1"}, "Ratelimit": {`"a";r=1`}}, nil, set{"X-Ratelimit-Remaining": {"1"}, "Ratelimit": {`"a";r=1`}}},
		"the set of less remaining is whole":                        {set{"X-Ratelimit-Remaining": {"10"}, "X-Ratelimit-Limit": {"100"}}, set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1"}}, set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1"}}},
		"of equal ones it is ours":                                  {set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Limit": {"100"}}, set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1"}}, set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Limit": {"100"}}},
		"one without a number loses":                                {set{"X-Ratelimit-Remaining": {"9"}}, set{"X-Ratelimit-Remaining": {"1.5"}, "X-Ratelimit-Limit": {"7"}}, set{"X-Ratelimit-Remaining": {"9"}}},
		"one without a number is not lost":                          {set{"Ratelimit": {`"a";r=1`}}, set{"X-Ratelimit-Limit": {"7"}}, set{"Ratelimit": {`"a";r=1`}, "X-Ratelimit-Limit": {"7"}}},
		"ours is whole where neither has one":                       {set{"X-Ratelimit-Used": {"1"}}, set{"X-Ratelimit-Limit": {"7"}}, set{"X-Ratelimit-Used": {"1"}}},
		"how long ours waited stays":                                {set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Waited": {"0.500"}}, set{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Waited": {"7.000"}}, set{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Waited": {"0.500"}}},
		"how long ours waited is no set":                            {set{"X-Ratelimit-Waited": {"0.500"}}, set{"X-Ratelimit-Limit": {"7"}}, set{"X-Ratelimit-Waited": {"0.500"}, "X-Ratelimit-Limit": {"7"}}},
		"or else how long theirs did":                               {set{"X-Ratelimit-Remaining": {"1"}}, set{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Waited": {"7.000"}}, set{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Waited": {"7.000"}}},
		"shadows are a list":                                        {set{"X-Ratelimit-Shadow": {`"a";r=1`}}, set{"X-Ratelimit-Shadow": {`"b";r=1`}}, set{"X-Ratelimit-Shadow": {`"a";r=1, "b";r=1`}}},
		"several lines become one":                                  {set{"Ratelimit": {`"a";r=1`, `"b";r=2`}}, set{"Ratelimit": {`"c";r=3`, `what`, `"d";r=4`}}, set{"Ratelimit": {`"a";r=1, "b";r=2, "c";r=3, "d";r=4`}}},
		"lines that are no lists are kept if there is nothing else": {set{"Ratelimit": {`limit=1`}}, set{"Ratelimit": {`limit=2`}}, set{"Ratelimit": {`limit=1`}}},
		"a header that next doubles is single":                      {set{"X-Ratelimit-Remaining": {"9"}}, set{"X-Ratelimit-Remaining": {"1", "2"}, "Retry-After": {"1", "3", "2"}}, set{"X-Ratelimit-Remaining": {"1"}, "Retry-After": {"3"}}},
		"whatever the case it is written in":                        {set{"X-Ratelimit-Remaining": {"9"}}, set{"x-ratelimit-remaining": {"1"}, "RateLimit": {`"a";r=1`}}, set{"X-Ratelimit-Remaining": {"1"}, "Ratelimit": {`"a";r=1`}}},
		"Retry-After is the later":                                  {set{"Retry-After": {"3"}}, set{"Retry-After": {"2"}}, set{"Retry-After": {"3"}}},
		"Retry-After may be a date":                                 {set{"Retry-After": {"600"}}, set{"Retry-After": {later}}, set{"Retry-After": {later}}},
		"a date may be sooner":                                      {set{"Retry-After": {"600"}}, set{"Retry-After": {soon}}, set{"Retry-After": {"600"}}},
		"Retry-After that is neither loses":                         {set{"Retry-After": {"1"}}, set{"Retry-After": {"soon"}}, set{"Retry-After": {"1"}}},
		"Retry-After that is huge":                                  {set{"Retry-After": {"1"}}, set{"Retry-After": {"9223372036854775807"}}, set{"Retry-After": {"9223372036854775807"}}},
		"other headers are left alone":                              {set{"Vary": {"A", "B"}, "Ratelimit": {`"a";r=1`}}, set{"Set-Cookie": {"a", "b"}, "X-Ratelimit": {"1", "2"}, "Ratelimit-Reset": {"1", "2"}}, set{"Vary": {"A", "B"}, "Ratelimit": {`"a";r=1`}, "Set-Cookie": {"a", "b"}, "X-Ratelimit": {"1", "2"}, "Ratelimit-Reset": {"1", "2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			for header, values := range c.outer {
				w.Header()[header] = values
			}
			headers.Merge(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for header := range c.outer {
					if header != "Vary" && w.Header()[header] != nil {
						t.Errorf("next sees %v", w.Header())
					}
				}
				for header, values := range c.inner {
					w.Header()[header] = values
				}
			})).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if got, want := fmt.Sprintf("%q", w.Header()), fmt.Sprintf("%q", http.Header(c.want)); got != want && (len(c.want) > 0 || len(w.Header()) > 0) {
				t.Errorf("headers %s\nwant    %s", got, want)
			}
		})
	}
}
