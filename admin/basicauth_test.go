package admin_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

var byPassword = admin.BasicAuth(
	admin.User{Name: "ops", Password: "correct horse", Access: admin.Change},
	admin.User{Name: "dévs", Password: "battery:staple", Access: admin.View},
)

// basicAuthCases are by name and password: "" is no header. Their want is the answer to a reader and to a change.
var basicAuthCases = []struct {
	name, password string
	read, change   int
}{
	{"ops", "correct horse", 200, 303},
	{"dévs", "battery:staple", 200, 403},
	{"ops", "battery:staple", 401, 401}, // that of the other user
	{"ops", "correct horsf", 401, 401},
	{"ops", "correct horse ", 401, 401},
	{"ops", "", 401, 401},
	{"Ops", "correct horse", 401, 401},
	{"", "correct horse", 401, 401},
	{"", "", 401, 401},
}

func TestBasicAuthOpensThePageToItsUsers(t *testing.T) {
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{api}})
	page := admin.Handler(limiter, byPassword, admin.Config{Logger: slog.New(slog.DiscardHandler)})
	for _, tt := range basicAuthCases {
		as := func(r *http.Request) {
			if tt.name != "" || tt.password != "" {
				r.SetBasicAuth(tt.name, tt.password)
			}
		}
		for _, path := range []string{"", "facts.json", "style.css"} {
			checkChallenge(t, serve(page, "GET", path, "", as), tt.read)
		}
		checkChallenge(t, serve(page, "POST", "key/reset", form("ip:1").Encode(), as), tt.change)
	}
	for _, header := range []string{"Basic", "Basic !", "Basic b3Bz", "Bearer b3BzOmNvcnJlY3QgaG9yc2U="} {
		checkChallenge(t, serve(page, "GET", "", "", func(r *http.Request) { r.Header.Set("Authorization", header) }), 401)
	}
}

func TestGuardKeepsStrangersOut(t *testing.T) {
	metrics := admin.Guard(byPassword, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("metrics")) }))
	for _, tt := range basicAuthCases {
		w := serve(metrics, "GET", "", "", func(r *http.Request) { r.SetBasicAuth(tt.name, tt.password) })
		checkChallenge(t, w, tt.read)
		if (w.Body.String() == "metrics") != (tt.read == 200) {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
	for allowed, want := range map[admin.Access]int{admin.None: 403, admin.View: 200, admin.Change: 200, admin.Change + 1: 403} {
		guarded := admin.Guard(func(*http.Request) (string, admin.Access) { return "ann", allowed }, metrics)
		checkChallenge(t, serve(guarded, "GET", "", "", func(r *http.Request) { r.SetBasicAuth("ops", "correct horse") }), want)
	}
}

// checkChallenge expects a status, and with 401 a challenge, without which a browser does not ask.
func checkChallenge(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	challenge := w.Header().Get("WWW-Authenticate")
	if w.Code != want || strings.HasPrefix(challenge, "Basic realm=") != (want == 401) {
		t.Errorf("status %d, want %d; WWW-Authenticate %q; %s", w.Code, want, challenge, w.Body)
	}
	if want == 401 && strings.Contains(w.Body.String(), "api") {
		t.Errorf("a stranger reads %s", w.Body)
	}
}

func TestBasicAuthRefusesWeakUsers(t *testing.T) {
	good := admin.User{Name: "ops", Password: "correct horse", Access: admin.Change}
	for want, change := range map[string]func(*admin.User){
		`Name "": must be set`:          func(u *admin.User) { u.Name = "" },
		`Name "a:b": must be set`:       func(u *admin.User) { u.Name = "a:b" },
		`Name "ops\n": must be set`:     func(u *admin.User) { u.Name = "ops\n" },
		`Name "ops": must not be that`:  func(*admin.User) {},
		`at least 12 bytes, has 0`:      func(u *admin.User) { u.Password = "" },
		`at least 12 bytes, has 11`:     func(u *admin.User) { u.Password = "12345678901" },
		`must have no control char`:     func(u *admin.User) { u.Password += "\n" },
		`Access of "ops": must be View`: func(u *admin.User) { u.Access = admin.None },
	} {
		u := good
		change(&u)
		text := panicText(func() { admin.BasicAuth(good, u) })
		if !strings.Contains(text, "admin: BasicAuth: users[1]: ") || !strings.Contains(text, want) || strings.Contains(text, "correct") {
			t.Errorf("%s: panics with %q", want, text)
		}
	}
	for want, wire := range map[string]func(){
		"BasicAuth: users: must have": func() { admin.BasicAuth() },
		"Guard: authorize, next":      func() { admin.Guard(nil, http.NotFoundHandler()) },
		"next: must not be nil":       func() { admin.Guard(byPassword, nil) },
	} {
		if text := panicText(wire); !strings.Contains(text, want) {
			t.Errorf("%s: panics with %q", want, text)
		}
	}
}

// panicText returns the text that f panics with.
func panicText(f func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	f()
	return ""
}
