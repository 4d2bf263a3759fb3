package adaptertest

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// Colon translates a path from "/items/{id}" to "/items/:id".
func Colon(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// ServeHTTP serves h on loopback until the test ends, over HTTP/1.1 and HTTP/2 without TLS, and returns its URL. The
// test fails if the server logs anything except panics, such as a header that is written twice.
func ServeHTTP(t testing.TB, h http.Handler) string {
	var logged lockedBuffer
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(&logged, "", 0)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if text := logged.String(); text != "" && !strings.Contains(text, ": panic serving ") {
			t.Errorf("the server has logged:\n%s", text)
		}
	})
	return server.URL
}

// A lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// client returns a client that follows no redirects and shows a response as it came.
func (e *env) client(http2 bool) *http.Client {
	transport := &http.Transport{DisableCompression: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	e.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       e.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// An answer is a response that was read to its end. Its status is 0 if the connection was closed without a response.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (e *env) request(method, url string, header ...string) *http.Request {
	e.Helper()
	r, err := http.NewRequestWithContext(e.Context(), method, url, nil)
	if err != nil {
		e.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// send sends a request with header lines, of a name and a value each.
func (e *env) send(method, url string, header ...string) answer {
	e.Helper()
	return read(e.http1.Do(e.request(method, url, header...)))
}

func (e *env) get(url string, header ...string) answer {
	e.Helper()
	return e.send(http.MethodGet, url, header...)
}

func read(response *http.Response, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body), err}
}

// want checks the status of an answer, and that no header of a limiter stands there twice.
func (e *env) want(a answer, status int, what string, args ...any) {
	e.Helper()
	if a.status != status {
		e.Fatalf(what+": got status %d, error %v, body %q; want %d", append(args, a.status, a.err, a.body, status)...)
	}
	for _, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After", "Cache-Control"} {
		if values := a.header[name]; len(values) > 1 {
			e.Errorf(what+": %s is there %d times: %q", append(args, name, len(values), values)...)
		}
	}
}

// limiter returns a limiter in memory, with enough time for a machine that is busy.
func (e *env) limiter(cfg ratelimit.Config) *ratelimit.Limiter {
	e.Helper()
	cfg.Timeout = 5 * time.Second
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := ratelimit.New(cfg)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { l.Close() })
	return l
}

// everybody is a policy under which all requests share a bucket that does not refill during a test.
func everybody(name string, burst int64) ratelimit.Policy {
	return ratelimit.Policy{Name: name, Key: ratelimit.Static("everybody"), Limit: ratelimit.Every(time.Hour).WithBurst(burst)}
}

// remaining returns the tokens that a bucket of everybody holds.
func (e *env) remaining(l *ratelimit.Limiter, p ratelimit.Policy) int64 {
	e.Helper()
	result, err := l.Peek(e.Context(), p, "static:everybody")
	if err != nil {
		e.Fatal(err)
	}
	return result.Remaining
}

// eventually waits until ok returns true: some of it happens after the client has its response.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for deadline := time.Now().Add(e.timeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			e.Fatalf("not in %v: %s", e.timeout, what)
		}
	}
}

func ok(c Context) error { return c.Text(http.StatusOK, "ok") }
