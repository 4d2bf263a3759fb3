package code_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// explainedApp is the program of docs/explain.md.
func explainedApp(limiter *ratelimit.Limiter) http.Handler {
	login := ratelimit.Policy{
		Name:  "login",
		Key:   ratelimit.Join(clientAddress, ratelimit.Route()),
		Limit: ratelimit.Every(15 * time.Minute).WithBurst(5),
	}
	mux := http.NewServeMux()
	mux.Handle("POST /login/{tenant}", limiter.Limit(login)(http.HandlerFunc(logIn)))
	mux.HandleFunc("POST /explain", explainForm(limiter))
	return limiter.Handler(mux)
}

var clientAddress = ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})

func explainedLimiter() *ratelimit.Limiter {
	return ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{Name: "api", Key: clientAddress, Limit: ratelimit.PerMinute(60).WithBurst(10)}}}))
}

// explainForm explains a request of the caller to another path. Mount it for operators only.
func explainForm(limiter *ratelimit.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := r.Clone(r.Context()) // the context has the server, and so the routes of the program
		asked.Method = r.FormValue("method")
		asked.URL.Path, asked.URL.RawPath = r.FormValue("path"), ""
		io.WriteString(w, limiter.Explain(asked).String())
	}
}

func TestALoginBehindTheProxyCountsForItsClient(t *testing.T) {
	limiter := explainedLimiter()
	defer limiter.Close()
	app := explainedApp(limiter)

	r := httptest.NewRequest("POST", "/login/acme", nil)
	r.RemoteAddr = "10.0.0.7:51234"
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	server := &http.Server{Handler: app} // it does not have to run
	e := limiter.Explain(r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))

	if len(e.Unknown) > 0 || len(e.Limiters) != 2 {
		t.Fatalf("the login is not behind both limits:\n%v", e)
	}
	if key := e.Limiters[1].Policies[0].Key; key != "join:ip:203.0.113.9|route:POST /login/{tenant}" {
		t.Errorf("a login counts for %s:\n%v", key, e)
	}
}

// The text in docs/explain.md is the one of the program.
func TestTheExplanationOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "docs/explain.md"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		limiter := explainedLimiter()
		defer limiter.Close()
		server := &http.Server{Handler: explainedApp(limiter)}
		r := httptest.NewRequest("POST", "/explain?method=POST&path=/login/acme", nil)
		r.RemoteAddr = "10.0.0.7:51234"
		r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.9, 10.0.0.2")
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))
		if text := strings.TrimSpace(w.Body.String()); !strings.Contains(string(guide), "```text\n"+text+"\n```") {
			t.Errorf("docs/explain.md does not have\n%s", text)
		}
	})
}
