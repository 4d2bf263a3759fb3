package ratelimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

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
