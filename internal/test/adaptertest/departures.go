package adaptertest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

var departures = []check{
	{"a client that leaves while it waits", func(e *env) { e.testLeavesWaiting(false) }},
	{"a client that leaves while its request is handled", testLeavesHandled},
}

// A client that leaves while it waits for its tokens gives them back, and its place. That is no error of the server.
func (e *env) testLeavesWaiting(byFramework bool) {
	policy := everybody("api", 1)
	policy.Limit = ratelimit.Every(3 * time.Second)
	policy.MaxWait = time.Minute
	left := make(chan *ratelimit.Event, 10)
	limiter := e.limiter(ratelimit.Config{
		MaxWaiting: 1,
		Policies:   []ratelimit.Policy{policy},
		Observe: func(_ context.Context, event *ratelimit.Event) {
			if errors.Is(event.Err, context.Canceled) {
				left <- event
			}
		},
	})
	handled := make(chan int, 1)
	url := e.serve(App{
		Limiter: limiter,
		Handler: true,
		Errors:  byFramework,
		Routes:  []Route{{Method: "GET", Path: "/", Handler: ok}},
		OnError: func(_ Context, status int, err error) {
			if !errors.Is(err, context.Canceled) {
				e.Errorf("the error handling gets %v", err)
			}
			handled <- status
		},
	})
	e.want(e.get(url), 200, "first")
	begin := time.Now()
	ctx, leave := context.WithCancel(e.Context())
	ended := make(chan answer, 1)
	go func() { ended <- read(e.http1.Do(e.request("GET", url).WithContext(ctx))) }()
	e.eventually("the request has reserved its token", func() bool { return e.debt(limiter, policy) })
	leave()
	<-ended
	select {
	case event := <-left:
		if event.Allowed {
			e.Errorf("event %+v", event)
		}
	case <-time.After(min(e.timeout, 2*time.Second)):
		e.Fatal("the limiter does not notice")
	}
	if time.Since(begin) < 2*time.Second && e.debt(limiter, policy) {
		e.Error("the token was not given back")
	}
	if byFramework {
		if status := next(e, handled); status != 499 {
			e.Errorf("the error handling gets status %d, want 499", status)
		}
	}
}

// debt reports whether a token that is not there yet is reserved.
func (e *env) debt(l *ratelimit.Limiter, p ratelimit.Policy) bool {
	e.Helper()
	result, err := l.Peek(e.Context(), p, "static:everybody")
	if err != nil {
		e.Fatal(err)
	}
	return result.ResetAfter > 3*time.Second
}

// A client that leaves while its request is handled ends the context of the handler, and the request is settled.
func testLeavesHandled(e *env) {
	policy, responses := recorder("api")
	begun := make(chan struct{})
	noticed := make(chan bool, 1)
	url := e.serve(App{
		Limiter: e.limiter(ratelimit.Config{Policies: []ratelimit.Policy{policy}}),
		Handler: true,
		Routes: []Route{{Method: "GET", Path: "/", Handler: func(c Context) error {
			close(begun)
			select {
			case <-c.Context().Done():
				noticed <- true
			case <-time.After(min(e.timeout, 2*time.Second)):
				noticed <- false
			}
			return c.Status(http.StatusServiceUnavailable)
		}}},
	})
	ctx, leave := context.WithCancel(e.Context())
	ended := make(chan answer, 1)
	go func() { ended <- read(e.http1.Do(e.request("GET", url).WithContext(ctx))) }()
	select {
	case <-begun:
	case a := <-ended:
		leave()
		e.Fatalf("status %d, error %v", a.status, a.err)
	}
	leave()
	<-ended
	if r := e.settled(responses); r.Status != http.StatusServiceUnavailable {
		e.Errorf("settled for %+v", r)
	}
	if !<-noticed {
		e.Error("the handler's context does not end when the client leaves")
	}
}
