package ratelimit_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// asCharged is a Settle that leaves the estimate, for handlers that call SetCost.
func asCharged(_ *http.Request, r ratelimit.Response) int64 { return r.Cost }

func TestThreeFailedLoginsLockAndSuccessesNeverCount(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		p := settled("login", ratelimit.Every(20*time.Minute).WithBurst(3), ratelimit.FailedLogins)
		h := newLimiter(t, ratelimit.Config{Store: s}).Limit(p)(answering)
		for i, step := range []struct {
			answer, want int
		}{
			{200, 200}, {204, 204}, {302, 302}, {200, 200}, {304, 304}, {200, 200}, {206, 206},
			{401, 401}, {200, 200}, {403, 403}, {200, 200}, {200, 200}, {500, 500},
			{401, 429}, {200, 429}, {403, 429},
		} {
			if w := get(h, query(strconv.Itoa(step.answer))); w.Code != step.want {
				t.Fatalf("step %d: the answer to one that the handler answers %d is %d, want %d", i, step.answer, w.Code, step.want)
			}
		}
		c.Advance(20*time.Minute - time.Second)
		wantStatuses(t, h, []int{429}, query("200"))
		c.Advance(time.Second)
		wantStatuses(t, h, []int{200, 200}, query("200"))
		wantStatuses(t, h, []int{401, 429}, query("401"))
	})
}

func TestParallelGuessesAreNoMoreThanTheTokens(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		p := settled("login", ratelimit.PerHour(3), ratelimit.FailedLogins)
		var guesses, refused atomic.Int64
		allDecided := make(chan struct{})
		const callers = 100
		var decided atomic.Int64
		decide := func() {
			if decided.Add(1) == callers {
				close(allDecided)
			}
		}
		h := newLimiter(t, ratelimit.Config{Store: s}).Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			guesses.Add(1)
			decide()
			<-allDecided // a guess is under way until all others have tried
			w.WriteHeader(http.StatusUnauthorized)
		}))
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				if get(h).Code == http.StatusTooManyRequests {
					refused.Add(1)
					decide()
				}
			})
		}
		running.Wait()
		if guesses.Load() != 3 || refused.Load() != callers-3 {
			t.Errorf("%d guesses, %d refused, want 3 and %d", guesses.Load(), refused.Load(), callers-3)
		}
		wantStatuses(t, h, []int{429})
	})
}

// A response that cost more than there was is a debt, to the microsecond.
func TestWhatAResponseCostsIsChargedIntoDebt(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
		var calls [][]store.Charge
		rec := &recorder{Store: s}
		perKilobyte := func(_ *http.Request, r ratelimit.Response) int64 { return r.Bytes / 1000 }
		p := settled("bytes", ratelimit.PerSecond(10), perKilobyte)
		h := newLimiter(t, ratelimit.Config{Store: rec}).Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.RawQuery)
			w.Write(make([]byte, n/2))
			io.WriteString(w, strings.Repeat("x", n-n/2))
		}))
		wantStatuses(t, h, []int{200}, query("50000")) // 50 of 10: a debt of 40
		calls = rec.Calls
		if len(calls) != 2 || len(calls[1]) != 1 || calls[1][0].Cost != 49 {
			t.Fatalf("calls %+v, want the estimate and one more of 49", calls)
		}
		w := get(h, query("0"))
		if w.Code != 429 || w.Header().Get("Retry-After") != "5" {
			t.Errorf("%d, Retry-After %q, want 429 and 4.1 seconds rounded up", w.Code, w.Header().Get("Retry-After"))
		}
		c.Advance(4100*time.Millisecond - time.Microsecond)
		wantStatuses(t, h, []int{429}, query("1000"))
		c.Advance(time.Microsecond)
		wantStatuses(t, h, []int{200, 429}, query("1000"))
	})
}

func TestSetCostSaysMoreThanSettle(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	l := newLimiter(t, ratelimit.Config{Store: s})
	outer := settled("outer", ratelimit.PerHour(100), func(*http.Request, ratelimit.Response) int64 {
		t.Error("Settle was asked though the handler said the cost")
		return 0
	})
	inner := settled("inner", ratelimit.PerHour(100), costs(5))
	unsettled := perIP("unsettled", ratelimit.PerHour(100))
	optional := settled("optional", ratelimit.PerHour(100), costs(5))
	optional.Key, optional.Optional = noKey, true

	var ctx context.Context
	h := l.Limit(outer)(l.Limit(inner, unsettled, optional)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx = r.Context()
		for name, want := range map[string]bool{"outer": true, "unsettled": false, "optional": false, "nobody": false, "": false} {
			if got := ratelimit.SetCost(ctx, name, 7); got != want {
				t.Errorf("SetCost of %q: %t, want %t", name, got, want)
			}
		}
		ratelimit.SetCost(ctx, "outer", 20) // the last one counts
	})))
	get(h)
	for p, want := range map[*ratelimit.Policy]int64{&outer: 80, &inner: 95, &unsettled: 99, &optional: 100} {
		if got := remaining(t, l, *p); got != want {
			t.Errorf("%s: %d left, want %d", p.Name, got, want)
		}
	}
	if ratelimit.SetCost(ctx, "outer", 50) || remaining(t, l, outer) != 80 {
		t.Error("a request was settled again after its handler had returned")
	}
	if ratelimit.SetCost(t.Context(), "outer", 1) {
		t.Error("SetCost without a request found something")
	}
}

func TestCostsOutOfRangeAreKeptWithin(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		l := newLimiter(t, ratelimit.Config{Store: s})
		below := settled("below", ratelimit.PerHour(10), costs(math.MinInt64))
		get(l.Limit(below)(okHandler))
		if got := remaining(t, l, below); got != 10 {
			t.Errorf("below 0: %d left, want 10: it is 0", got)
		}
		above := settled("above", ratelimit.PerHour(10), costs(math.MaxInt64))
		get(l.Limit(above)(okHandler))
		w := get(l.Limit(above)(okHandler))
		if after, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64); w.Code != 429 || err != nil || after < 365*24*3600 {
			t.Errorf("beyond all bounds: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
	})
}

// The bucket of a shadow may be where nobody answers, which vetoes nothing.
func TestAShadowWhoseBucketDidNotAnswerIsNotSettled(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	rec := &recorder{Store: &unansweredShadows{s}}
	api, shadow := settled("api", ratelimit.PerHour(10), costs(0)), settled("shadow", ratelimit.PerHour(10), costs(0))
	shadow.Shadow = true
	get(newLimiter(t, ratelimit.Config{Store: rec}).Limit(api, shadow)(okHandler))
	if len(rec.Calls) != 2 || len(rec.Calls[1]) != 1 || rec.Calls[1][0].Policy != "api" {
		t.Errorf("calls %+v, want the estimates, and api's token back", rec.Calls)
	}
}

// unansweredShadows is a Store that charges no shadow, as a redisstore does while the server of its bucket is away.
type unansweredShadows struct{ store.Store }

func (u *unansweredShadows) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := u.Store.Take(ctx, charges[:1], states)
	for i := 1; i < len(charges); i++ {
		states[i] = store.State{Allowed: true, Degraded: true}
	}
	return ok, err
}

// Otherwise what the new limit has granted meanwhile would be cut to the old burst, and what it has not would refill at the
// old rate. A tier stays, because Policy.Limit is only the default there.
func TestAfterAReloadRequestsAreSettledUnderTheNewLimit(t *testing.T) {
	fast, slow := ratelimit.PerSecond(10), ratelimit.PerHour(10)
	reload := func(l *ratelimit.Limiter, next ratelimit.Policy) error { // the last of several counts
		between := next
		between.Limit = ratelimit.PerSecond(20)
		return errors.Join(l.Reload(between), l.Reload(next))
	}
	override := func(l *ratelimit.Limiter, next ratelimit.Policy) error {
		return l.Override([]ratelimit.Override{{Policy: next.Name, Limit: next.Limit}})
	}
	for name, tt := range map[string]struct {
		mounted  bool // by Limit
		from, to ratelimit.Limit
		tier     ratelimit.Limit
		change   func(*ratelimit.Limiter, ratelimit.Policy) error
		want     int64
	}{
		"raised":     {false, fast, ratelimit.PerSecond(1000), ratelimit.Limit{}, reload, 996},
		"lowered":    {false, fast, slow, ratelimit.Limit{}, reload, 4},
		"in Limit":   {true, fast, slow, ratelimit.Limit{}, reload, 4},
		"overridden": {true, fast, slow, ratelimit.Limit{}, override, 4},
		"a tier":     {false, slow, ratelimit.PerHour(20), ratelimit.PerHour(100), reload, 94},
	} {
		t.Run(name, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s store.Store, c *clock) {
				old := settled("api", tt.from, costs(5))
				if tt.tier != (ratelimit.Limit{}) {
					old.LimitFunc = func(*http.Request) ratelimit.Limit { return tt.tier }
				}
				var final ratelimit.Result
				observe := func(_ context.Context, e *ratelimit.Event) {
					if e.Op == "settle" {
						final = e.Results[0]
					}
				}
				l := newLimiter(t, ratelimit.Config{Store: s, Observe: observe, Policies: []ratelimit.Policy{old}})
				limit := l.Handler
				if tt.mounted {
					l = newLimiter(t, ratelimit.Config{Store: s, Observe: observe})
					limit = l.Limit(old)
				}
				next := old
				next.Limit = tt.to
				now := next
				now.Limit = cmp.Or(tt.tier, tt.to)
				get(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					if err := tt.change(l, next); err != nil {
						t.Fatal(err)
					}
					if _, err := l.Take(t.Context(), now, address, 1); err != nil {
						t.Fatal(err)
					}
					c.Advance(time.Second)
				})))
				if got := remaining(t, l, now); got != tt.want {
					t.Errorf("%d left, want %d", got, tt.want)
				}
				if final.Limit != now.Limit || final.Remaining != tt.want {
					t.Errorf("observed: %d left of %v, want %d of %v", final.Remaining, final.Limit, tt.want, now.Limit)
				}
			})
		})
	}
}

// Stacked policies of one name are settled each for its own key. SetCost reaches each of them, and no other policy.
func TestStackedPoliciesOfOneName(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		for said, want := range map[bool][3]int64{false: {97, 43, 9}, true: {93, 43, 9}} {
			l := newLimiter(t, ratelimit.Config{Store: s})
			outer, inner := settled("api", ratelimit.PerHour(100), costs(3)), settled("api", ratelimit.PerHour(50), costs(7))
			inner.Key = ratelimit.Static(fmt.Sprint(said))
			outer.Key = ratelimit.Static("outer" + fmt.Sprint(said))
			other := settled("other"+fmt.Sprint(said), ratelimit.PerHour(10), costs(1))
			get(l.Limit(outer)(l.Limit(inner, other)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if said && !ratelimit.SetCost(r.Context(), "api", 7) {
					t.Error("SetCost found no policy")
				}
			}))))
			for i, p := range []ratelimit.Policy{outer, inner, other} {
				key, _ := p.Key(requestWith())
				if r, err := l.Peek(t.Context(), p, key); err != nil || r.Remaining != want[i] {
					t.Errorf("with SetCost %t: bucket %d has %d left, error %v, want %d", said, i, r.Remaining, err, want[i])
				}
			}
		}
	})
}

// A hung store must not keep the connection of a client.
func TestSettlingEndsWithTheTimeout(t *testing.T) {
	inBubble(t, ratelimit.Config{Timeout: time.Second, Store: new(hangsLater)}, func(t *testing.T, q *queue) {
		begin := time.Now()
		ctx, gone := context.WithCancel(t.Context())
		r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
		w := httptest.NewRecorder()
		q.Limit(settled("api", ratelimit.PerHour(10), costs(0)))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			gone() // which does not keep the request from being settled
		})).ServeHTTP(w, r)
		if took := time.Since(begin); took != time.Second || !strings.Contains(q.Log.String(), "not settled") {
			t.Errorf("took %v, want the Timeout; log %q", took, q.Log.String())
		}
	})
}

// hangsLater is a Store that hangs from the second call on.
type hangsLater struct{ called atomic.Bool }

func (h *hangsLater) Take(ctx context.Context, _ []store.Charge, states []store.State) (bool, error) {
	if !h.called.Swap(true) {
		states[0] = store.State{Allowed: true}
		return true, nil
	}
	<-ctx.Done()
	return false, ctx.Err()
}

// A remote store is not told that somebody left once it was asked, and then has charged nobody knows what.
type slow struct{ store.Store }

func (s slow) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	ok, err := s.Store.Take(ctx, charges, states)
	select {
	case <-time.After(time.Second):
		return ok, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func TestARequestWhoseClientLeavesWhileTheStoreIsAskedIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
		defer s.Close()
		l := newLimiter(t, ratelimit.Config{Store: slow{s}, Timeout: time.Minute})
		p := settled("login", ratelimit.PerHour(3), ratelimit.FailedLogins)
		a := arrive(l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Err() == nil {
				t.Error("the handler is not told that the client left")
			}
			w.WriteHeader(http.StatusOK)
		})), t.Context())
		a.Leave()
		a.Want(t, http.StatusOK, 2*time.Second) // of deciding and settling
		if n := remaining(t, l, p); n != 3 {
			t.Errorf("%d are left of 3, although no login failed", n)
		}
	})
}

func TestAPolicyThatFailsClosedIsNotSettledWithAStandIn(t *testing.T) {
	primary, standIn := ratelimit.Must(memstore.New(memstore.Config{})), ratelimit.Must(memstore.New(memstore.Config{}))
	defer primary.Close()
	defer standIn.Close()
	breakable := &recorder{Store: primary}
	backed := ratelimit.Must(fallback.New(breakable, standIn, fallback.Config{Failures: 1, Logger: slog.New(slog.DiscardHandler)}))
	defer backed.Close()
	l := newLimiter(t, ratelimit.Config{Store: backed, Logger: slog.New(slog.DiscardHandler)})
	p := settled("login", ratelimit.PerHour(10), costs(5))
	p.FailClosed = true
	get(l.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		breakable.Lock()
		breakable.Fault = func([]store.Charge) error { return errors.New("away") }
		breakable.Unlock()
		backed.Take(t.Context(), []store.Charge{{Policy: "x", Key: "x", Limit: store.Limit{Unit: 1, Refill: 1, Capacity: 1}}}, make([]store.State, 1))
	})))
	states := make([]store.State, 1)
	limit, _ := store.NewLimit(10, time.Hour, 10)
	if _, err := standIn.Take(t.Context(), []store.Charge{{Policy: "login", Key: "ip:192.0.2.1", Limit: limit}}, states); err != nil || states[0].Remaining != 10 {
		t.Errorf("the stand-in has %d left, error %v, want 10", states[0].Remaining, err)
	}
}

// Whatever is not seen to succeed counts.
func TestFailedLoginsRefundsOnlyWhatWasSeenToSucceed(t *testing.T) {
	status := func(codes ...int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, code := range codes {
				w.WriteHeader(code)
			}
		}
	}
	for _, tt := range []struct {
		name     string
		handler  http.HandlerFunc
		refunded bool
	}{
		{"200", status(200), true},
		{"204", status(204), true},
		{"206", status(206), true},
		{"303", status(303), true},
		{"304", status(304), true},
		{"399", status(399), true},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "welcome") }, true},
		{"a flush, which may send what was written past the limiter", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, false},
		{"a file", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader("welcome"))
		}, true},
		{"early hints and 200", status(103, 200), true},
		{"SetCost without a response", func(_ http.ResponseWriter, r *http.Request) { ratelimit.SetCost(r.Context(), "login", 0) }, true},

		{"nothing", status(), false},
		{"early hints alone", status(103), false},
		{"early hints and 401", status(103, 401), false},
		{"101", status(101), false},
		{"400", status(400), false},
		{"401", status(401), false},
		{"401 and 200", status(401, 200), false},
		{"403", status(403), false},
		{"429", status(429), false},
		{"502", status(502), false},
		{"a panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false},
		{"200 and a panic that is recovered inside of the limiter", func(w http.ResponseWriter, _ *http.Request) {
			defer func() { recover() }()
			w.WriteHeader(200)
			panic("broken")
		}, true}, // see FailedLogins
		{"200 and a panic", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("broken") }, false},
		{"SetCost after 200", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			ratelimit.SetCost(r.Context(), "login", 1)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{})
			p := settled("login", ratelimit.PerHour(3), ratelimit.FailedLogins)
			h := l.Limit(p)(tt.handler)
			for range 2 {
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil))
				}()
			}
			if got, want := remaining(t, l, p), map[bool]int64{true: 3, false: 1}[tt.refunded]; got != want {
				t.Errorf("%d are left of 3 after two requests, want %d", got, want)
			}
		})
	}
}

// crippled is a writer that says that it can hijack and flush, and cannot.
type crippled struct{ *httptest.ResponseRecorder }

func (crippled) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

func (crippled) FlushError() error { return http.ErrNotSupported }

func TestARequestIsSettledByTheStatusAfterAFailedHijackOrFlush(t *testing.T) {
	for name, try := range map[string]func(*http.ResponseController) error{
		"hijack": func(c *http.ResponseController) error {
			_, _, err := c.Hijack()
			return err
		},
		"flush": (*http.ResponseController).Flush,
	} {
		t.Run(name, func(t *testing.T) {
			var got ratelimit.Response
			p := settled("login", ratelimit.PerHour(3), func(r *http.Request, response ratelimit.Response) int64 {
				got = response
				return ratelimit.FailedLogins(r, response)
			})
			l := newLimiter(t, ratelimit.Config{})
			l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := try(http.NewResponseController(w)); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("error %v, want that of the writer", err)
				}
				w.WriteHeader(http.StatusUnauthorized)
			})).ServeHTTP(crippled{httptest.NewRecorder()}, httptest.NewRequest("POST", "/login", nil))
			if want := (ratelimit.Response{Status: 401, Written: true, Cost: 1}); got != want || remaining(t, l, p) != 2 {
				t.Errorf("got %+v, want %+v; %d are left of 3, want 2", got, want, remaining(t, l, p))
			}
		})
	}
}

// A handler that has taken over the connection says what it likes on it.
func TestFailedLoginsCountsAConnectionThatIsTakenOver(t *testing.T) {
	p := settled("login", ratelimit.PerHour(3), ratelimit.FailedLogins)
	l := newLimiter(t, ratelimit.Config{})
	server := httptest.NewServer(l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "200" { // which is not all of the answer
			w.WriteHeader(http.StatusOK)
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		rw.Flush()
	})))
	defer server.Close()
	for i, guess := range []struct {
		query string
		want  int
	}{{"?200", 200}, {"", 401}, {"", 401}, {"", 429}, {"?200", 429}} {
		response, err := server.Client().Get(server.URL + "/" + guess.query)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != guess.want {
			t.Errorf("guess %d is answered %d, want %d", i, response.StatusCode, guess.want)
		}
	}
}

// A client must not get its guesses back by hanging up when it knows that they are wrong, or just before.
func TestFailedLoginsCountsClientsOfAProxyThatHangUp(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	for name, errorHandler := range map[string]func(http.ResponseWriter, *http.Request, error){
		"and are answered 502":     nil, // the default
		"and are answered nothing": func(http.ResponseWriter, *http.Request, error) {},
	} {
		t.Run(name, func(t *testing.T) {
			guessed := make(chan struct{}, 10)
			backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				guessed <- struct{}{}
				<-r.Context().Done() // the client hangs up while the answer is on its way
			}))
			defer backend.Close()
			target, err := url.Parse(backend.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(target)
			proxy.ErrorLog, proxy.ErrorHandler = quiet, errorHandler

			l := newLimiter(t, ratelimit.Config{})
			limited := l.Limit(settled("login", ratelimit.PerHour(3), ratelimit.FailedLogins))(proxy)
			settled := make(chan struct{}, 10)
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { settled <- struct{}{} }()
				limited.ServeHTTP(w, r)
			}))
			defer front.Close()

			for range 3 {
				ctx, hangUp := context.WithCancel(t.Context())
				go func() {
					<-guessed
					hangUp()
				}()
				r, err := http.NewRequestWithContext(ctx, "POST", front.URL, strings.NewReader("guess"))
				if err != nil {
					t.Fatal(err)
				}
				if response, err := front.Client().Do(r); err == nil {
					response.Body.Close()
					t.Fatalf("a guess was answered %d before its client hung up", response.StatusCode)
				}
				<-settled
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a fourth guess would not be answered
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, "POST", front.URL, strings.NewReader("guess"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := front.Client().Do(r)
			if err != nil {
				t.Fatalf("the fourth guess was made: %v", err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusTooManyRequests {
				t.Errorf("the fourth guess was answered %d, want 429", response.StatusCode)
			}
		})
	}
}

// Frameworks write the errors of handlers where the limiter does not see them.
func TestFailedLoginsCountsErrorsThatFrameworksWrite(t *testing.T) {
	errPassword := errors.New("wrong password")
	for name, framework := range map[string]func(limit func(http.Handler) http.Handler) http.Handler{
		// As echo does: the error of a handler is kept, and written when all middleware has returned.
		"after the limiter": func(limit func(http.Handler) http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var err error
				written := w
				limit(http.HandlerFunc(func(inner http.ResponseWriter, _ *http.Request) {
					written, err = inner, errPassword
				})).ServeHTTP(w, r)
				if err != nil {
					http.Error(written, err.Error(), http.StatusUnauthorized)
				}
			})
		},
		// As gin does: the handler has the writer of the framework, and not the one of the middleware.
		"past the limiter's writer": func(limit func(http.Handler) http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					http.Error(w, errPassword.Error(), http.StatusUnauthorized)
				})).ServeHTTP(w, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, ratelimit.Config{})
			h := framework(l.Limit(settled("login", ratelimit.PerHour(3), ratelimit.FailedLogins)))
			wantStatuses(t, h, []int{401, 401, 401, 429, 429, 429})
		})
	}
}

// Otherwise requests that are held open across the boundary, with high estimates, make the next quota larger.
func TestARequestIsNotRefundedToTheNextPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := settled("api", ratelimit.Quota(10, ratelimit.Hour), costs(1))
		p.Cost = func(*http.Request) int64 { return 5 }
		l := newLimiter(t, ratelimit.Config{})
		h := l.Limit(p)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(10 * time.Minute)
			if _, err := l.Take(t.Context(), p, address, 2); err != nil {
				t.Fatal(err)
			}
		}))
		get(h)
		if got := remaining(t, l, p); got != 7 {
			t.Errorf("%d left in the period of the request, want 7", got)
		}
		time.Sleep(45 * time.Minute)
		get(h)
		if got := remaining(t, l, p); got != 8 {
			t.Errorf("%d left in the next period, want 8", got)
		}
	})
}

func TestASuccessInTheNextPeriodEndsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := settled("login", ratelimit.Quota(1, ratelimit.Hour), ratelimit.FailedLogins)
		p.LockFor = time.Hour
		l := newLimiter(t, ratelimit.Config{})
		h := l.Limit(p)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(40 * time.Minute)
			w.WriteHeader(http.StatusOK)
		}))
		wantStatuses(t, h, []int{200, 200, 200})
	})
}
