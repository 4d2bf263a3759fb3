package ratelimit_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

// byMethod has a LimitFunc that depends on the request, not on the key.
func byMethod(name string) ratelimit.Policy {
	p := perIP(name, ratelimit.PerHour(5))
	p.LimitFunc = func(r *http.Request) ratelimit.Limit {
		if r.Method == "GET" {
			return ratelimit.PerSecond(100)
		}
		return ratelimit.Limit{}
	}
	return p
}

func TestALimitThatGoesBackAndForthIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := logged(t)
		h := l.Limit(byMethod("api"))(okHandler)
		for range 20 {
			get(h, method("POST"))
			get(h)
		}
		if n := strings.Count(text.String(), "\n"); n != 1 {
			t.Errorf("%d lines:\n%s", n, text)
		}
		checkText(t, text.String(), "level=WARN", "LimitFunc must depend on the key alone", "policy=api", "limit=5/1h", "other_limit=100/1s")
		if strings.Contains(text.String(), "192.0.2.1") {
			t.Errorf("the key is in the log: %s", text)
		}
	})
}

func TestLimitsThatDependOnTheKeyAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := logged(t)
		tier := perIP("api", ratelimit.PerHour(5))
		tier.LimitFunc = func(r *http.Request) ratelimit.Limit {
			n, _, _ := strings.Cut(strings.TrimPrefix(r.RemoteAddr, "192.0.2."), ":")
			return ratelimit.PerHour(int64(len(n)) + 1)
		}
		h := l.Limit(tier)(okHandler)
		for range 3 {
			for i := range 200 {
				get(h, from("192.0.2."+strconv.Itoa(i)))
			}
		}

		// One that is upgraded, and downgraded later; one that is exempt, or denied, by the request.
		changes := l.Limit(byMethod("changes"))(okHandler)
		get(changes)
		get(changes, method("POST"))
		time.Sleep(time.Minute)
		get(changes)
		exempt := byMethod("exempt")
		exempt.LimitFunc = func(r *http.Request) ratelimit.Limit {
			return map[string]ratelimit.Limit{"GET": ratelimit.Unlimited, "PUT": ratelimit.PerDay(0)}[r.Method]
		}
		for _, m := range []string{"GET", "POST", "PUT", "POST", "GET", "POST"} {
			get(l.Limit(exempt)(okHandler), method(m))
		}
		if text.Len() > 0 {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// With far more keys than are watched, one of them is noticed.
func TestASwingIsNoticedAmongManyKeys(t *testing.T) {
	l, text := logged(t)
	h := l.Limit(byMethod("api"))(okHandler)
	for i := range 2000 { // which come once, and then never again
		get(h, from("198.51."+strconv.Itoa(i/250)+"."+strconv.Itoa(i%250)))
	}
	for i := range 50_000 {
		m := "GET"
		if i/100%2 == 0 {
			m = "POST"
		}
		get(h, method(m), from("192.0.2."+strconv.Itoa(i%100)))
		if text.Len() > 0 {
			return
		}
	}
	t.Error("nothing was logged")
}

func TestASwingIsLoggedOnceByManyRequestsAtOnce(t *testing.T) {
	l, text := logged(t)
	h := l.Limit(byMethod("api"))(okHandler)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 100 {
				get(h)
				get(h, method("POST"))
			}
		})
	}
	running.Wait()
	if n := strings.Count(text.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

func TestAPolicyWatchesNoKeysBeforeItsFirstRequest(t *testing.T) {
	kept := func(wire func(l *ratelimit.Limiter) http.Handler) int64 {
		l := quiet(t)
		return ratetest.HeapOf(func() any {
			var handlers []http.Handler
			for range 100 {
				handlers = append(handlers, wire(l))
			}
			return handlers
		}) / 100
	}
	without := kept(func(l *ratelimit.Limiter) http.Handler {
		return l.Limit(perIP("api", ratelimit.PerHour(5)))(okHandler)
	})
	with := kept(func(l *ratelimit.Limiter) http.Handler { return l.Limit(byMethod("api"))(okHandler) })
	used := kept(func(l *ratelimit.Limiter) http.Handler {
		h := l.Limit(byMethod("api"))(okHandler)
		get(h)
		return h
	})
	noticed := kept(func(l *ratelimit.Limiter) http.Handler {
		h := l.Limit(byMethod("api"))(okHandler)
		get(h)
		get(h, method("POST"))
		get(h)
		return h
	})
	if with > without+512 || noticed > without+2048 || used > without+8<<10 {
		t.Errorf("a policy takes %d bytes; with a LimitFunc %d, after a request %d, after a warning %d", without, with, used, noticed)
	}
}
