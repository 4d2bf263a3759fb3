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
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
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

// net/http removes the files of a form when the request that it made has been served.
func TestFilesOfUploadsAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	onNesting(t, func(t *testing.T, limited func(http.Handler) http.Handler) {
		for _, panics := range []bool{false, true} {
			var stored atomic.Int64
			server := httptest.NewServer(recovering(limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1); err != nil {
					t.Error(err)
				}
				stored.Add(int64(files(t)))
				if panics {
					panic("handler")
				}
			}))))
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, _ := form.CreateFormFile("file", "upload")
			io.WriteString(part, strings.Repeat("x", 1<<16))
			form.Close()
			response, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
			if err == nil {
				response.Body.Close()
			}
			server.Close()
			if stored.Load() == 0 || files(t) != 0 {
				t.Errorf("panics %t: %d files while it was served, %d after", panics, stored.Load(), files(t))
			}
		}
	})
}

// A client that is over its limit must not fill the disk.
func TestFilesOfDeniedUploadsAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	l := newLimiter(t, ratelimit.Config{Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil || files(t) == 0 {
			t.Errorf("%v, %d files while it was denied", err, files(t))
		}
		w.WriteHeader(429)
	})})
	spent := perIP("api", ratelimit.PerHour(1))
	if _, err := l.Take(t.Context(), spent, "ip:127.0.0.1", 1); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(l.Limit(spent)(okHandler))
	defer server.Close()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", "upload")
	io.WriteString(part, strings.Repeat("x", 1<<16))
	form.Close()
	response, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.Close()
	if response.StatusCode != 429 || files(t) != 0 {
		t.Errorf("%d, %d files are left", response.StatusCode, files(t))
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
