package adaptertest

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

var stacked = []check{
	{"Handler outside, Limit inside: headers of the tightest", testStackedHeaders},
	{"Handler outside, Limit inside: a denial inside spends outside", testStackedDenial},
	{"Handler outside, Limit inside: both settle", testStackedSettle},
	{"Handler outside, Limit inside: a refusal inside settles outside", func(e *env) { e.testRefusalInside(false) }},
}

func testStackedHeaders(e *env) {
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{everybody("outer", 3)}}),
		Handler: true,
		Routes: []Route{
			{Method: "GET", Path: "/tight", Policies: []ratelimit.Policy{everybody("tight", 2)}, Handler: ok},
			{Method: "GET", Path: "/wide", Policies: []ratelimit.Policy{everybody("wide", 50), everybody("wider", 60)}, Handler: ok},
		},
	})
	for _, c := range []struct {
		path             string
		status           int
		limit, remaining string
	}{
		{"/tight", 200, "2", "1"}, {"/wide", 200, "3", "1"}, {"/wide", 200, "3", "0"}, {"/wide", 429, "3", "0"},
	} {
		a := e.get(url + c.path)
		e.want(a, c.status, "%s", c.path)
		if limit, remaining := a.header.Get("X-Ratelimit-Limit"), a.header.Get("X-Ratelimit-Remaining"); limit != c.limit || remaining != c.remaining {
			e.Errorf("%s: %s of %s left, want %s of %s", c.path, remaining, limit, c.remaining, c.limit)
		}
	}
}

func testStackedDenial(e *env) {
	outer, inner := everybody("outer", 10), everybody("inner", 2)
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{outer}})
	url := e.serve(App{
		Limiter: limiter,
		Handler: true,
		Routes:  []Route{{Method: "GET", Path: "/", Policies: []ratelimit.Policy{inner}, Handler: ok}},
	})
	for i, status := range []int{200, 200, 429, 429} {
		e.want(e.get(url), status, "request %d", i+1)
	}
	if o, i := e.remaining(limiter, outer), e.remaining(limiter, inner); o != 6 || i != 0 {
		e.Errorf("outside %d, inside %d left; want 6 and 0", o, i)
	}
}

func testStackedSettle(e *env) {
	outer, inner := everybody("outer", 10), everybody("inner", 10)
	outer.Settle = func(_ *http.Request, r ratelimit.Response) int64 { return int64(r.Status / 100) }
	inner.Settle = outer.Settle
	limiter := e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{outer}})
	url := e.serve(App{
		Limiter: limiter,
		Handler: true,
		Routes: []Route{
			{Method: "GET", Path: "/", Policies: []ratelimit.Policy{inner}, Handler: func(c Context) error { return c.Text(404, "none") }},
		},
	})
	e.want(e.get(url), 404, "request")
	e.eventually("both have settled for 4", func() bool {
		return e.remaining(limiter, outer) == 6 && e.remaining(limiter, inner) == 6
	})
}

// A refusal inside is how the request of the outer policy was answered.
func (e *env) testRefusalInside(byFramework bool) {
	outer, responses := recorder("outer")
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{outer}}),
		Handler: true,
		Errors:  byFramework,
		Routes:  []Route{{Method: "GET", Path: "/", Policies: []ratelimit.Policy{everybody("inner", 1)}, Handler: ok}},
	})
	for _, status := range []int{200, 429} {
		a := e.get(url)
		e.want(a, status, "request")
		if r := e.settled(responses); r.Status != status || !r.Written || a.header.Get("X-Ratelimit-Limit") != "1" {
			e.Errorf("status %d: settled for %+v, header %v", status, r, a.header)
		}
	}
}
