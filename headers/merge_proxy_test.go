package headers_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

// proxyTo returns a proxy in front of a server of its own.
func proxyTo(t *testing.T, upstream http.Handler) *httputil.ReverseProxy {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
	}
}

// fetch asks a server of h's, over loopback.
func fetch(t *testing.T, h http.Handler, change ...func(*http.Request)) *http.Response {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	return response
}

// limits are the headers of a response that tell limits, each of which must be there once.
func limits(t *testing.T, h http.Header) map[string]string {
	t.Helper()
	told := lines(t, h)
	maps.DeleteFunc(told, func(name, _ string) bool { return !strings.Contains(name, "Ratelimit") && name != "Retry-After" })
	return told
}

func wantLimits(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	if got := limits(t, h); !maps.Equal(got, want) {
		t.Errorf("headers %q, want %q", got, want)
	}
}

// gateway is a policy of which 4 remain after a request.
var gateway = perIP("gateway", ratelimit.PerMinute(20).WithBurst(5))

func TestAProxyMergesTheHeadersOfAServerThatIsLimitedToo(t *testing.T) {
	for name, mount := range map[string]func(*ratelimit.Limiter, *httputil.ReverseProxy) http.Handler{
		"wrapped directly": func(l *ratelimit.Limiter, proxy *httputil.ReverseProxy) http.Handler { return l.Limit(gateway)(proxy) },
		"in a router": func(l *ratelimit.Limiter, proxy *httputil.ReverseProxy) http.Handler {
			r := chi.NewRouter()
			r.With(l.Limit(gateway)).Handle("/*", headers.Merge(proxy))
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := frozen(t, both).Limit(perIP("upstream", ratelimit.PerMinute(20).WithBurst(2)))(okHandler)
			h := mount(frozen(t, both), proxyTo(t, upstream))
			for i, want := range []map[string]string{
				{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "3", "Ratelimit": `"gateway";r=4;t=12, "upstream";r=1;t=3`},
				{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "6", "Ratelimit": `"gateway";r=3;t=9, "upstream";r=0;t=3`},
				{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "6", "Ratelimit": `"gateway";r=2;t=6, "upstream";r=0;t=3`, "Retry-After": "3"},
			} {
				want["Ratelimit-Policy"] = `"gateway";q=5;w=15, "upstream";q=2;w=6`
				response := fetch(t, h)
				if status := []int{200, 200, 429}[i]; response.StatusCode != status {
					t.Errorf("%d: status %d, want %d", i, response.StatusCode, status)
				}
				wantLimits(t, response.Header, want)
			}
		})
	}
}

func TestAProxyMergesTheHeadersOfOthers(t *testing.T) {
	github := map[string]string{
		"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "4999", "X-RateLimit-Reset": "1800000000", "X-RateLimit-Used": "1", "X-RateLimit-Resource": "core",
	}
	h := frozen(t, headers.DeltaSeconds).Limit(gateway)(proxyTo(t, setting(github, okHandler)))
	wantLimits(t, fetch(t, h).Header, map[string]string{"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3"})

	github["X-RateLimit-Remaining"] = "0"
	h = frozen(t, both).Limit(gateway)(proxyTo(t, setting(github, okHandler)))
	wantLimits(t, fetch(t, h).Header, map[string]string{
		"X-Ratelimit-Limit": "5000", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000000", "X-Ratelimit-Used": "1", "X-Ratelimit-Resource": "core",
		"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12`,
	})
}

func TestADenialBeforeAProxyIsOursAlone(t *testing.T) {
	asked := 0
	h := frozen(t, both).Limit(perIP("gateway", ratelimit.PerMinute(1)))(proxyTo(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ })))
	fetch(t, h)
	response := fetch(t, h)
	if response.StatusCode != 429 || asked != 1 {
		t.Errorf("status %d, the server was asked %d times", response.StatusCode, asked)
	}
	wantLimits(t, response.Header, map[string]string{
		"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60",
		"Ratelimit-Policy": `"gateway";q=1;w=60`, "Ratelimit": `"gateway";r=0;t=60`, "Retry-After": "60",
	})
}

func TestAProxyWithoutAServerHasOurHeaders(t *testing.T) {
	proxy := proxyTo(t, nothing)
	proxy.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("down") })
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	response := fetch(t, frozen(t, headers.IETF).Limit(gateway)(proxy))
	if response.StatusCode != http.StatusBadGateway {
		t.Errorf("status %d", response.StatusCode)
	}
	wantLimits(t, response.Header, map[string]string{"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12`})
}

// A ReverseProxy forgets all headers that were set when it passes an informational response on.
func TestOurHeadersOutliveEarlyHints(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.Header().Set("RateLimit", `"hint";r=1;t=1`)
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.Header().Set("RateLimit", `"upstream";r=9;t=9`)
		w.WriteHeader(http.StatusAccepted)
	})
	merged := map[string]string{"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12, "upstream";r=9;t=9`}
	theirs := []string{`103 ["hint";r=1;t=1]`, `102 ["hint";r=1;t=1]`}
	inRouter := func(h http.Handler) http.Handler {
		router := http.NewServeMux()
		router.Handle("/", h)
		return router
	}
	for name, tt := range map[string]struct {
		next  http.Handler
		want  map[string]string
		hints []string
	}{
		"directly":    {proxyTo(t, upstream), merged, theirs},
		"in a router": {inRouter(headers.Merge(proxyTo(t, upstream))), merged, theirs},
		"in a router, as Handler warns against": {
			inRouter(proxyTo(t, upstream)), map[string]string{"Ratelimit": `"upstream";r=9;t=9`},
			[]string{`103 ["gateway";r=4;t=12 "hint";r=1;t=1]`, `102 ["hint";r=1;t=1]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := frozen(t, headers.IETF).Limit(gateway)(tt.next)
			var hints []string
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints = append(hints, fmt.Sprint(code, h["Ratelimit"]))
				return nil
			}}
			response := fetch(t, h, func(r *http.Request) { *r = *r.WithContext(httptrace.WithClientTrace(r.Context(), trace)) })
			if !slices.Equal(hints, tt.hints) {
				t.Errorf("informational responses %q, want %q", hints, tt.hints)
			}
			if response.StatusCode != http.StatusAccepted {
				t.Errorf("status %d", response.StatusCode)
			}
			wantLimits(t, response.Header, tt.want)
		})
	}
}

// switching is a server that speaks another protocol, in which it echoes.
func switching(headers string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n%s\r\n", headers)
		rw.Flush()
		io.Copy(conn, rw)
	})
}

// A ReverseProxy takes the connection over and writes the header by itself then.
func TestAProxyThatSwitchesProtocolsMerges(t *testing.T) {
	for name, c := range map[string]struct {
		upstream string
		want     map[string]string
	}{
		"the server tells limits": {"RateLimit: \"upstream\";r=9;t=9\r\nX-RateLimit-Remaining: 1\r\n", map[string]string{
			"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12, "upstream";r=9;t=9`, "X-Ratelimit-Remaining": "1"}},
		"the server tells none": {"", map[string]string{
			"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12`, "X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(frozen(t, both).Limit(gateway)(proxyTo(t, switching(c.upstream))))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			r := bufio.NewReader(conn)
			response, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("status %d", response.StatusCode)
			}
			wantLimits(t, response.Header, c.want)
			fmt.Fprint(conn, "hello\n")
			if line, err := r.ReadString('\n'); line != "hello\n" {
				t.Errorf("echo %q, %v", line, err)
			}
		})
	}
}

// However a handler writes, its header and ours are merged before.
func TestHeadersAreMergedWhenTheHeaderIsWritten(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"WriteHeader":          func(w http.ResponseWriter) { w.WriteHeader(200) },
		"WriteHeader and more": func(w http.ResponseWriter) { w.WriteHeader(200); io.WriteString(w, "a"); w.Write([]byte("b")) },
		"Write":                func(w http.ResponseWriter) { w.Write([]byte("a")) },
		"WriteString":          func(w http.ResponseWriter) { io.WriteString(w, "a") },
		"ReadFrom":             func(w http.ResponseWriter) { w.(io.ReaderFrom).ReadFrom(strings.NewReader("a")) },
		"Flush":                func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"FlushError":           func(w http.ResponseWriter) { http.NewResponseController(w).Flush() },
		"WriteHeader of 101":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) },
		"Nothing":              func(w http.ResponseWriter) {},
		"Hijack": func(w http.ResponseWriter) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			r := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: w.Header(), Close: true}
			r.Write(rw)
			rw.Flush()
		},
		"Hijack, and headers after": func(w http.ResponseWriter) {
			conn, rw, _ := w.(http.Hijacker).Hijack()
			defer conn.Close()
			w.Header().Add("RateLimit", `"later";r=1;t=1`)
			w.Header().Set("X-RateLimit-Remaining", "0")
			r := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: w.Header(), Close: true}
			r.Write(rw)
			rw.Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := frozen(t, both).Limit(gateway)(headers.Merge(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("RateLimit", `"next";r=9;t=9`)
				w.Header().Set("X-RateLimit-Remaining", "1")
				write(w)
			})))
			want := map[string]string{"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12, "next";r=9;t=9`, "X-Ratelimit-Remaining": "1"}
			if strings.HasSuffix(name, "after") {
				want["Ratelimit"] += `, "later";r=1;t=1`
				want["X-Ratelimit-Remaining"] = "0"
			}
			wantLimits(t, fetch(t, h).Header, want)
		})
	}
}

// What recovers from a panic outside answers with our headers, as without Merge.
func TestHeadersAreMergedAfterAPanic(t *testing.T) {
	panics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"next";r=9;t=9`)
		panic("of a test")
	})
	limited := frozen(t, headers.IETF).Limit(gateway)(headers.Merge(panics))
	response := fetch(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != "of a test" {
				t.Error("the panic is not what it was")
			}
			w.WriteHeader(500)
		}()
		limited.ServeHTTP(w, r)
	}))
	if response.StatusCode != 500 {
		t.Errorf("status %d", response.StatusCode)
	}
	wantLimits(t, response.Header, map[string]string{"Ratelimit-Policy": `"gateway";q=5;w=15`, "Ratelimit": `"gateway";r=4;t=12, "next";r=9;t=9`})
}

// A writer that can do little is not said to do more, and what it can do it still does.
func TestMergeKeepsTheMethodsOfAResponseWriter(t *testing.T) {
	plain := headerWriter{"Ratelimit": {`"a";r=1`}}
	headers.Merge(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(http.Flusher); ok {
			t.Error("it says that it can flush")
		}
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); !ok || u.Unwrap().Header().Get("RateLimit") != "" {
			t.Error("it does not unwrap to the writer outside")
		}
	})).ServeHTTP(plain, httptest.NewRequest("GET", "/", nil))
	if plain.Header().Get("RateLimit") == "" {
		t.Error("what was set before is lost")
	}
}
