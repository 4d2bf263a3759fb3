package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// draining starts a server whose BaseContext drain cancels.
func draining(t *testing.T, h http.Handler, http2 bool) (server *httptest.Server, drain func()) {
	ctx, drain := context.WithCancel(t.Context())
	server = httptest.NewUnstartedServer(h)
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	t.Cleanup(drain)
	return server, drain
}

// While a server drains, its clients are still there, although the context of each request is cancelled.
func TestADrainingServerAnswersTheClientsThatAreStillThere(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			events := make(chan *ratelimit.Event, 10)
			arrived := make(chan struct{}, 10)
			l := newLimiter(t, ratelimit.Config{Observe: func(_ context.Context, e *ratelimit.Event) { events <- e }})
			h := l.Limit(waiting(perIP("api", ratelimit.Every(time.Hour).WithBurst(2)), 2*time.Hour))(okHandler)
			server, drain := draining(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				h.ServeHTTP(w, r)
			}), http2)
			get := func() *http.Response {
				response, err := server.Client().Get(server.URL)
				if err != nil {
					t.Error(err)
					return &http.Response{Header: http.Header{}}
				}
				response.Body.Close()
				return response
			}
			if first := get(); first.StatusCode != 200 {
				t.Fatalf("before: %d", first.StatusCode)
			}
			drain()
			if second := get(); second.StatusCode != 200 || second.Header.Get("X-RateLimit-Remaining") != "0" {
				t.Errorf("one that need not wait: %d %v", second.StatusCode, second.Header)
			}
			if third := get(); third.StatusCode != 503 || third.Header.Get("Retry-After") == "" {
				t.Errorf("one that would have to wait: %d %v, want 503", third.StatusCode, third.Header)
			}
			for range 3 {
				<-arrived
				<-events
			}
		})
	}
}

// A 499 is for the log alone: it says that nobody is there.
func TestAClientThatIsGoneIs499InTheLog(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			statuses, arrived := make(chan int, 1), make(chan struct{})
			l := newLimiter(t, ratelimit.Config{})
			spent := waiting(perIP("api", ratelimit.Every(time.Hour)), 2*time.Hour)
			if _, err := l.Take(t.Context(), spent, "ip:127.0.0.1", 1); err != nil {
				t.Fatal(err)
			}
			h := l.Limit(spent)(okHandler)
			server, _ := draining(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				s := &statusWriter{ResponseWriter: w}
				h.ServeHTTP(s, r)
				statuses <- s.status
			}), http2)
			ctx, leave := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-arrived
				leave()
			}()
			if _, err := server.Client().Do(r); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if status := <-statuses; status != 499 {
				t.Errorf("status %d, want 499", status)
			}
		})
	}
}

// A statusWriter is a middleware's that knows Unwrap alone.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// onNesting runs a test on limiters around a handler: one, one that settles, two of each.
func onNesting(t *testing.T, test func(t *testing.T, limited func(http.Handler) http.Handler)) {
	l := newLimiter(t, ratelimit.Config{})
	plain, settled := perIP("plain", ratelimit.PerHour(100)), perIP("settled", ratelimit.PerHour(100))
	settled.Settle = ratelimit.FailedLogins
	for name, limited := range map[string]func(http.Handler) http.Handler{
		"plain":   l.Limit(plain),
		"settled": l.Limit(settled),
		"stacked": func(h http.Handler) http.Handler { return l.Limit(plain)(l.Limit(settled)(l.Limit(plain, settled)(h))) },
		"foreign": func(h http.Handler) http.Handler {
			h = l.Limit(settled)(l.Limit(plain)(h))
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-RateLimit-Remaining", "7")
				h.ServeHTTP(w, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, limited) })
	}
}

func TestTheRouteComesBackToThoseOutside(t *testing.T) {
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		mux := http.NewServeMux()
		mux.Handle("GET /items/{id}", okHandler)
		mux.HandleFunc("GET /panic/{id}", func(http.ResponseWriter, *http.Request) { panic("handler") })
		for path, want := range map[string]string{"/items/5": "GET /items/{id}", "/panic/5": "GET /panic/{id}"} {
			r := httptest.NewRequest("GET", path, nil)
			recovering(limited(mux)).ServeHTTP(httptest.NewRecorder(), r)
			if r.Pattern != want || r.PathValue("id") != "5" {
				t.Errorf("%s: pattern %q, id %q", path, r.Pattern, r.PathValue("id"))
			}
		}
	})
}

func recovering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		h.ServeHTTP(w, r)
	})
}

// upload posts a form with a file.
func upload(t *testing.T, h http.Handler) (status int) {
	server := httptest.NewServer(h)
	defer server.Close()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", "upload")
	io.WriteString(part, strings.Repeat("x", 1<<16))
	form.Close()
	response, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
	if err != nil {
		t.Error(err)
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// net/http removes the files of a form when the request that it made has been served. A client that is over its limit
// must not fill the disk either.
func TestFilesOfUploadsAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	stored := 0
	parse := func(r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		stored = files(t)
	}
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		for _, panics := range []bool{false, true} {
			stored = 0
			upload(t, recovering(limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if parse(r); panics {
					panic("handler")
				}
			}))))
			if stored == 0 || files(t) != 0 {
				t.Errorf("panics %t: %d files while it was served, %d after", panics, stored, files(t))
			}
		}
	})
	l := newLimiter(t, ratelimit.Config{Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parse(r)
		w.WriteHeader(429)
	})})
	spent := perIP("api", ratelimit.PerHour(1))
	if _, err := l.Take(t.Context(), spent, "ip:127.0.0.1", 1); err != nil {
		t.Fatal(err)
	}
	if stored = 0; upload(t, l.Limit(spent)(okHandler)) != 429 || stored == 0 || files(t) != 0 {
		t.Errorf("denied: %d files meanwhile, %d after", stored, files(t))
	}
}

func files(t *testing.T) int {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Error(err)
	}
	return len(entries)
}

// A request holds credentials, and others change its headers while a context is printed.
func TestAContextPrintsItsChainAlone(t *testing.T) {
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		h := limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			written := make(chan struct{})
			go func() {
				defer close(written)
				for range 100 {
					r.Header.Set("X-Changing", "x")
				}
			}()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			for _, verb := range []string{"%v", "%+v", "%s", "%#v", "%d", "%x"} {
				for _, ctx := range []context.Context{r.Context(), ctx} {
					text := fmt.Sprintf(verb, ctx)
					chain := strings.HasPrefix(text, "context.Background") || verb == "%#v" || verb == "%d" || verb == "%x" // of package context's
					if strings.Contains(text, "s3cret") || strings.Contains(text, "192.0.2.1") || !chain || len(text) > 600 {
						t.Errorf("%s: %s", verb, text)
					}
				}
			}
			<-written
		}))
		get(h, with("Authorization", "Bearer s3cret"), func(r *http.Request) { *r = *r.WithContext(context.Background()) })
	})
	// Nor does the context of a Store or an observer.
	var texts []string
	l := newLimiter(t, ratelimit.Config{Observe: func(ctx context.Context, _ *ratelimit.Event) { texts = append(texts, fmt.Sprint(ctx)) }})
	get(l.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler), with("Authorization", "Bearer s3cret"))
	if len(texts) != 1 || strings.Contains(texts[0], "s3cret") {
		t.Errorf("%q", texts)
	}
}

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
