package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A responder is the writer of an adapter for a framework in which a handler returns an error.
type responder struct {
	*httptest.ResponseRecorder
	refuses  bool
	answered ratelimit.Response
	asked    int
	fails    any // the panic of Response

	refusals []string
}

func (f *responder) Refuse(r *http.Request, status int, err error) bool {
	_, decided := ratelimit.FromContext(r.Context())
	f.refusals = append(f.refusals, fmt.Sprint(status, " ", err != nil, " ", decided))
	return f.refuses
}

func (f *responder) Response() ratelimit.Response {
	f.asked++
	if f.fails != nil {
		panic(f.fails)
	}
	return f.answered
}

func TestAResponderRefuses(t *testing.T) {
	gone := make(chan bool)
	close(gone)
	for name, tt := range map[string]struct {
		policy     ratelimit.Policy
		store      store.Store
		leaves     bool
		want       string
		retryAfter string
		status     int // if the limiter answers
	}{
		"denied":        {policy: perIP("p", ratelimit.PerHour(1)), want: "429 false true", retryAfter: "3600", status: 429},
		"no key":        {policy: ratelimit.Policy{Name: "p", Key: noKey, Limit: ratelimit.PerHour(1)}, want: "403 true false", status: 403},
		"bad request":   {policy: ratelimit.Policy{Name: "p", Key: finds("", ratelimit.ErrBadRequest), Limit: ratelimit.PerHour(1)}, want: "400 true false", status: 400},
		"closed":        {policy: ratelimit.Policy{Name: "p", Key: finds("k", nil), Limit: ratelimit.PerHour(1), FailClosed: true}, store: failing(func() error { return errors.New("down") }), want: "503 true false", retryAfter: "5", status: 503},
		"client leaves": {policy: waiting(perIP("p", ratelimit.PerHour(1)), 1<<60), leaves: true, want: "499 true false", status: 499},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{tt.policy}, Store: tt.store})
			h := l.Handler(okHandler)
			get(h) // takes the only token
			for _, refuses := range []bool{true, false} {
				w := &responder{ResponseRecorder: httptest.NewRecorder(), refuses: refuses}
				var rw http.ResponseWriter = w
				r := httptest.NewRequest("GET", "/", nil)
				if tt.leaves {
					ctx, cancel := context.WithCancel(r.Context())
					cancel()
					r = r.WithContext(ctx)
					rw = notifier{w, gone}
				}
				h.ServeHTTP(rw, r)
				if len(w.refusals) != 1 || w.refusals[0] != tt.want {
					t.Errorf("refused %q, want %q", w.refusals, tt.want)
				}
				h := w.Header()
				if got := h.Get("Retry-After"); got != tt.retryAfter {
					t.Errorf("Retry-After %q, want %q", got, tt.retryAfter)
				}
				if got := h.Get("Cache-Control"); !strings.Contains(got, "no-store") {
					t.Errorf("Cache-Control %q", got)
				}
				if limits := h.Get("X-RateLimit-Limit") != ""; limits != (tt.status == 429) {
					t.Errorf("X-RateLimit-Limit %q", h.Get("X-RateLimit-Limit"))
				}
				switch {
				case refuses && w.Body.Len() > 0:
					t.Errorf("the limiter answered %q, too", w.Body)
				case !refuses && w.Code != tt.status:
					t.Errorf("the limiter answered %d, want %d", w.Code, tt.status)
				}
			}
		})
	}
}

// A notifier is a responder that knows when its client leaves.
type notifier struct {
	*responder
	gone chan bool
}

func (n notifier) CloseNotify() <-chan bool { return n.gone }

func TestAResponderSaysHowARequestWasAnswered(t *testing.T) {
	errFramework := errors.New("a framework's error handler")
	for name, tt := range map[string]struct {
		method   string
		answered ratelimit.Response
		panics   bool // the handler
		fails    any  // Response
		want     ratelimit.Response
	}{
		"a status":            {answered: ratelimit.Response{Status: 401, Written: true, Bytes: 5}, want: ratelimit.Response{Status: 401, Written: true, Bytes: 5, Cost: 2}},
		"nothing":             {want: ratelimit.Response{Status: 200, Cost: 2}},
		"a HEAD has no bytes": {method: "HEAD", answered: ratelimit.Response{Status: 200, Bytes: 5}, want: ratelimit.Response{Status: 200, Cost: 2}},
		"hijacked":            {answered: ratelimit.Response{Hijacked: true}, want: ratelimit.Response{Hijacked: true, Cost: 2}},
		"what it cannot know": {answered: ratelimit.Response{Status: 200, Panicked: true, Cost: 77}, want: ratelimit.Response{Status: 200, Cost: 2}},
		"a panic":             {panics: true, answered: ratelimit.Response{Status: 500}, want: ratelimit.Response{Status: 500, Panicked: true, Cost: 2}},
		"a panic of its own":  {fails: errFramework, want: ratelimit.Response{Panicked: true, Cost: 2}},
		"both":                {panics: true, fails: errFramework, want: ratelimit.Response{Panicked: true, Cost: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{})
			var got []ratelimit.Response
			p := settled("p", ratelimit.PerHour(10), func(_ *http.Request, r ratelimit.Response) int64 {
				got = append(got, r)
				return r.Cost
			})
			p.Cost = func(*http.Request) int64 { return 2 }
			w := &responder{ResponseRecorder: httptest.NewRecorder(), answered: tt.answered, fails: tt.fails}
			h := l.Limit(p)(http.HandlerFunc(func(given http.ResponseWriter, r *http.Request) {
				if given != http.ResponseWriter(w) {
					t.Errorf("the next handler got a %T, want the Responder itself", given)
				}
				if tt.panics {
					panic("handler")
				}
			}))
			func() {
				defer func() {
					if p := recover(); (p != nil) != (tt.panics || tt.fails != nil) {
						t.Errorf("panic %v", p)
					}
				}()
				h.ServeHTTP(w, httptest.NewRequest(tt.method, "/", nil))
			}()
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("settled by %+v, want %+v once", got, tt.want)
			}
			if w.asked != 1 || w.refusals != nil {
				t.Errorf("asked %d times, refused %q", w.asked, w.refusals)
			}
		})
	}
}

// Only a request that is settled has its Responder asked: a framework may handle errors then, earlier than otherwise.
func TestAResponderIsNotAskedWithoutNeed(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Skip: func(r *http.Request) bool { return r.Method == "OPTIONS" }})
	free := settled("free", ratelimit.Unlimited, ratelimit.FailedLogins)
	for name, limited := range map[string]func(http.Handler) http.Handler{
		"no Settle": l.Limit(perIP("p", ratelimit.PerHour(10))),
		"unlimited": l.Limit(free),
		"skipped":   l.Limit(settled("skipped", ratelimit.PerHour(10), ratelimit.FailedLogins)),
	} {
		w := &responder{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "/", nil)
		if name == "skipped" {
			r.Method = "OPTIONS"
		}
		limited(okHandler).ServeHTTP(w, r)
		if w.asked != 0 || w.refusals != nil {
			t.Errorf("%s: asked %d times, refused %q", name, w.asked, w.refusals)
		}
	}
}

func TestAResponderIsToldOfAWaitThatIsTooLong(t *testing.T) {
	inBubble(t, ratelimit.Config{}, func(t *testing.T, q *queue) {
		h := q.Limit(waiting(perIP("p", ratelimit.PerHour(1)), 1))(okHandler)
		get(h)
		w := &responder{ResponseRecorder: httptest.NewRecorder(), refuses: true}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		synctest.Wait()
		if len(w.refusals) != 1 || w.refusals[0] != "429 false true" || w.Header().Get("Retry-After") != "3600" {
			t.Errorf("refused %q, headers %v", w.refusals, w.Header())
		}
	})
}
