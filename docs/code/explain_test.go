package code_test

import (
	"io"
	"net/http"
	"net/http/httptest"
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

var clientAddress = ratelimit.ClientIP(ratelimit.IPConfig{TrustedProxies: ratelimit.Must(ratelimit.ParseNetworks("10.0.0.0/8"))})

func explainedLimiter() *ratelimit.Limiter {
	return ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{{Name: "api", Key: clientAddress, Limit: ratelimit.PerMinute(60).WithBurst(10)}}}))
}

// explainForm explains a request of the caller to another path. Mount it for operators only.
func explainForm(limiter *ratelimit.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked, err := http.NewRequest(r.FormValue("method"), r.FormValue("path"), nil)
		if err != nil {
			http.Error(w, "method or path is malformed", http.StatusBadRequest)
			return
		}
		asked.Host, asked.RemoteAddr, asked.Header = r.Host, r.RemoteAddr, r.Header
		asked.Pattern = r.FormValue("route") // such as "POST /login/{tenant}"
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
	app.ServeHTTP(httptest.NewRecorder(), r) // from which the limiter knows the policies of the route
	r.Pattern = "POST /login/{tenant}"
	e := limiter.Explain(r)

	if len(e.Unknown) > 0 || len(e.Limiters) != 2 || !e.Limiters[1].Met {
		t.Fatalf("the login is not behind both limits:\n%v", e)
	}
	if key := e.Limiters[1].Policies[0].Key; key != "join:ip:203.0.113.9|route:POST /login/{tenant}" {
		t.Errorf("a login counts for %s:\n%v", key, e)
	}
}

// The text in docs/explain.md is the one of the program. An ellipsis stands for lines of it.
func TestTheExplanationOfTheGuide(t *testing.T) {
	guide := readDocument(t, "docs/explain.md")
	blocks, _ := guide.split()
	shown := blocks[0]
	synctest.Test(t, func(t *testing.T) {
		limiter := explainedLimiter()
		defer limiter.Close()
		app := explainedApp(limiter)
		app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login/other", nil))
		r := httptest.NewRequest("POST", "/explain?method=POST&path=/login/acme&route=POST+/login/{tenant}", nil)
		r.RemoteAddr, r.Host = "10.0.0.7:51234", "example.com"
		r.Header.Set("X-Forwarded-For", "198.51.100.1, 203.0.113.9, 10.0.0.2")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		text := strings.TrimSpace(w.Body.String())
		if line, ok := excerpt(shown.lines, strings.Split(text, "\n"), false); !ok {
			t.Errorf("%s: the program does not write this line. It writes\n%s", guide.at(shown.line+line), text)
		}
	})
}
