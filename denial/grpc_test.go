package denial_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
)

// h2c starts a server of HTTP/2 without TLS.
func h2c(t *testing.T, h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// A message of gRPC's: not compressed, three bytes long.
var grpcMessage = []byte{0, 0, 0, 0, 3, 1, 2, 3}

func TestAGRPCClientIsToldByStatusesOfItsOwn(t *testing.T) {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()

	for status, want := range map[int]struct{ code, message, retryAfter, pushback string }{
		429: {"8", "Too many requests: Try again in 3 seconds.", "3", "3000"},
		503: {"14", "Temporarily unavailable: Try again in 5 seconds.", "5", "5000"},
		403: {"7", "Forbidden", "", "-1"},
		400: {"3", "Bad request", "", "-1"},
	} {
		server := h2c(t, answers(t, denial.Handler{GRPC: true}, 3*time.Second)[status])
		r, err := http.NewRequest("POST", server.URL+"/pkg.Service/Method", bytes.NewReader(grpcMessage))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/grpc+proto")
		r.Header.Set("Te", "trailers")
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		// Trailers-Only: one HEADERS frame, which ends the stream. Its body is of this type.
		if body := fmt.Sprintf("%T", response.Body); !strings.HasSuffix(strings.ToLower(body), "nobodyreader") {
			t.Errorf("%d: the answer has a body, %s", status, body)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.ProtoMajor != 2 || response.StatusCode != 200 || len(body) != 0 || err != nil || len(response.Trailer) != 0 {
			t.Errorf("%d: %s %d, body %q, trailer %v, error %v", status, response.Proto, response.StatusCode, body, response.Trailer, err)
		}
		got := response.Header
		if got.Get("Content-Type") != "application/grpc+proto" || got.Get("Grpc-Status") != want.code || got.Get("Grpc-Message") != want.message || got.Get("Retry-After") != want.retryAfter {
			t.Errorf("%d: %v", status, got)
		}
		if pushback := got["Grpc-Retry-Pushback-Ms"]; !slices.Equal(pushback, []string{want.pushback}) {
			t.Errorf("%d: pushback %q", status, pushback)
		}
		if limit := got.Get("X-RateLimit-Limit"); status == 429 && limit != "1" {
			t.Errorf("X-RateLimit-Limit is %q", limit)
		}
	}
}

// Retry policies of gRPC ignore Retry-After.
func TestARetryPolicyIsToldWhenToComeBack(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Millisecond:        "1000", // never before Retry-After
		1001 * time.Millisecond: "2000",
		30 * 24 * time.Hour:     "2592000000",
		ratelimit.Never:         "-1",
		2*time.Second - 1_000:   "2000",
	} {
		w := get(answers(t, denial.Handler{GRPC: true}, after)[429], forms["grpc"]...)
		if got := w.Header()["Grpc-Retry-Pushback-Ms"]; !slices.Equal(got, []string{want}) {
			t.Errorf("%v: pushback %q, want %s", after, got, want)
		}
	}

	// Without a decision nothing is known, so a client's own backoff applies.
	w := get(denial.Handler{GRPC: true}, forms["grpc"]...)
	if got := w.Header()["Grpc-Retry-Pushback-Ms"]; got != nil {
		t.Errorf("without a limiter: pushback %q", got)
	}

	// Other protocols have no such header.
	for status, h := range answers(t, denial.Handler{GRPC: true}, time.Second) {
		if got := get(h, forms["json"]...).Header()["Grpc-Retry-Pushback-Ms"]; got != nil {
			t.Errorf("%d: JSON with pushback %q", status, got)
		}
	}
}

func TestWhatIsGRPC(t *testing.T) {
	h := answers(t, denial.Handler{GRPC: true}, time.Second)[429]
	for _, c := range []struct{ asked, over1, over2 string }{
		{"application/grpc", problemJSON, "application/grpc"},
		{"application/grpc+proto", problemJSON, "application/grpc+proto"},
		{"Application/GRPC+JSON; charset=utf-8", problemJSON, "application/grpc+json"},
		{"application/grpc+thrift", problemJSON, "application/grpc"},
		{"application/grpc ;x", problemJSON, "application/grpc"},
		{"application/grpc-web", "application/grpc-web", "application/grpc-web"},
		{"application/grpc-web+proto", "application/grpc-web+proto", "application/grpc-web+proto"},
		{"application/grpc-web-text", "application/grpc-web-text", "application/grpc-web-text"},
		{"application/grpc-web-text+proto", "application/grpc-web-text+proto", "application/grpc-web-text+proto"},
		{"application/grpc-webs", problemJSON, problemJSON},
		{"application/grpcs", problemJSON, problemJSON},
		{"application/grp", problemJSON, problemJSON},
		{"application/json", problemJSON, problemJSON}, // as through a grpc-gateway
		{"application/proto", problemJSON, problemJSON},
		{"", problemJSON, problemJSON},
	} {
		over1 := get(h, method("POST"), with("Content-Type", c.asked))
		over2 := get(h, method("POST"), with("Content-Type", c.asked), overHTTP2)
		if got := over1.Header().Get("Content-Type"); got != c.over1 {
			t.Errorf("%q over HTTP/1.1: %s", c.asked, got)
		}
		if got := over2.Header().Get("Content-Type"); got != c.over2 {
			t.Errorf("%q over HTTP/2: %s", c.asked, got)
		}
		for _, w := range []*httptest.ResponseRecorder{over1, over2} {
			isGRPC := strings.HasPrefix(w.Header().Get("Content-Type"), "application/grpc")
			if isGRPC != (w.Code == 200) || isGRPC != (w.Header().Get("Grpc-Status") == "8") || isGRPC != (w.Body.Len() == 0) {
				t.Errorf("%q: %d %v", c.asked, w.Code, w.Header())
			}
		}
	}
}

func TestOnlyAPostIsGRPC(t *testing.T) {
	for status, h := range answers(t, denial.Handler{GRPC: true}, time.Second) {
		for _, m := range []string{"GET", "HEAD", "PUT", "OPTIONS", "post", "BREW"} {
			for _, asked := range []string{"application/grpc", "application/grpc-web"} {
				w := get(h, method(m), with("Content-Type", asked), overHTTP2)
				if w.Code != status || w.Header().Get("Grpc-Status") != "" || w.Header().Get("Content-Type") != problemJSON {
					t.Errorf("%s of %s: %d %v", m, asked, w.Code, w.Header())
				}
			}
		}
	}
}

// No client turns a denial into a success unless its limiter is configured for gRPC.
func TestGRPCIsOffByDefault(t *testing.T) {
	handlers := map[string]map[int]http.Handler{"denial.Handler{}": answers(t, denial.Handler{}, time.Second)}
	l := newLimiter(t, ratelimit.Config{Store: denying(time.Second)}) // Config's own defaults
	handlers["no Deny"] = map[int]http.Handler{429: l.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler)}
	l = newLimiter(t, ratelimit.Config{})
	handlers["no Error"] = map[int]http.Handler{403: l.Limit(ratelimit.Policy{Name: "api", Key: noKey, Limit: ratelimit.PerHour(1)})(okHandler)}
	for name, byStatus := range handlers {
		for status, h := range byStatus {
			for _, asked := range []string{"application/grpc", "application/grpc+proto", "application/grpc-web", "application/grpc-web-text"} {
				for _, over := range []func(*http.Request){func(*http.Request) {}, overHTTP2} {
					w := get(h, method("POST"), with("Content-Type", asked), over)
					if w.Code != status || w.Header().Get("Grpc-Status") != "" || w.Header().Get("Content-Type") != problemJSON {
						t.Errorf("%s: %d asked for by %s: %d %v", name, status, asked, w.Code, w.Header())
					}
				}
			}
		}
	}
}

// FailedLogins, which goes by the status, sees what a limiter inside of it refused, whatever a client asks for.
func TestAnOuterFailedLoginsSeesAnInnerDenial(t *testing.T) {
	login := perIP("login", ratelimit.PerHour(2))
	login.Settle = ratelimit.FailedLogins
	l := newLimiter(t, ratelimit.Config{})
	inner := ratelimit.Policy{Name: "inner", Key: noKey, Limit: ratelimit.PerHour(1)}
	h := l.Limit(login)(l.Limit(inner)(okHandler))
	wantStatuses(t, h, []int{403, 403, 429}, method("POST"), with("Content-Type", "application/grpc-web"))
}

func TestAGRPCMessageIsPercentEncoded(t *testing.T) {
	d := denial.Handler{GRPC: true, Text: func(*http.Request, int, time.Duration) denial.Text {
		return denial.Text{Title: "100 % für ~\x7f", Detail: "\U0001F40C"}
	}}
	w := get(answers(t, d, time.Second)[429], forms["grpc"]...)
	if got := w.Header().Get("Grpc-Message"); got != "100 %25 f%C3%BCr ~: %F0%9F%90%8C" {
		t.Errorf("grpc-message is %q", got)
	}
}
