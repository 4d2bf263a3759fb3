package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

func TestThePageShowsWhoIsLimited(t *testing.T) {
	base, printed := start(t)
	if first, _, _ := strings.Cut(printed, "\n"); !strings.HasPrefix(first, "Admin:     "+base+"/admin/ ") || !strings.Contains(first, "this machine only") {
		t.Errorf("the first line is %q", first)
	}
	drainHello(t, base)
	page := do(t, "GET", base+"/admin/")
	if text := body(t, page); page.StatusCode != 200 || !strings.Contains(text, "Quickstart") || !strings.Contains(text, ">hello<") || !strings.Contains(text, "ip:127.0.0.1") {
		t.Errorf("status %d, page %s", page.StatusCode, text)
	}
	var facts any
	if err := json.Unmarshal([]byte(body(t, do(t, "GET", base+"/admin/facts.json"))), &facts); err != nil {
		t.Error(err)
	}

	// The page lets a client in again.
	r, err := http.Post(base+"/admin/key/reset", "application/x-www-form-urlencoded", strings.NewReader("policy=hello&key=ip:127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	body(t, r)
	if r.StatusCode != 200 {
		t.Errorf("reset: status %d", r.StatusCode)
	}
	wantStatuses(t, []int{200, 200, 200, 200, 200}, "GET", base+"/hello")
}

// The page changes a limit, and explains a request to a route with two policies.
func TestThePageChangesAndExplainsLimits(t *testing.T) {
	base, _ := start(t)
	if text := body(t, do(t, "GET", base+"/admin/limits")); !strings.Contains(text, "items-route") || strings.Contains(text, "cannot be changed here") {
		t.Errorf("the page of limits is %s", text)
	}
	post := func(path, form string) string {
		t.Helper()
		r, err := http.Post(base+path, "application/x-www-form-urlencoded", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		text := body(t, r)
		if r.StatusCode != 200 {
			t.Errorf("%s: status %d: %s", path, r.StatusCode, text)
		}
		return text
	}
	post("/admin/limits", "policy=hello&limit=2/1s+burst+7")
	wantStatuses(t, []int{200, 200, 200, 200, 200}, "GET", base+"/hello")
	wantStatuses(t, []int{200}, "GET", base+"/items/1")
	text := post("/admin/explain.json", "url=/items/7&peer=192.0.2.1&route=GET+/items/{id}")
	for _, want := range []string{`"GET /items/{id}"`, `"ip:192.0.2.1"`, `"items-route"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if text := post("/admin/explain.json", "url=/hello&peer=192.0.2.1&route=GET+/hello"); !strings.Contains(text, "2/1s burst 7") {
		t.Errorf("the changed limit is not explained: %s", text)
	}
}

func TestThePageBeforeTheFirstRequest(t *testing.T) {
	base, _ := start(t)
	if text := body(t, do(t, "GET", base+"/admin/")); strings.Count(text, "No requests so far.") != 4 || strings.Contains(text, "CountsConfig") {
		t.Errorf("before the first request the page is %s", text)
	}
}

func TestTheLimitsDoNotCountThePage(t *testing.T) {
	base, _ := start(t)
	for range 60 { // more than any limit
		wantStatuses(t, []int{200}, "GET", base+"/admin/")
	}
	wantStatuses(t, []int{200, 200, 200, 200, 200}, "GET", base+"/hello")
}

func TestThePageAnswersThisMachineOnly(t *testing.T) {
	api, err := newAPI(t.Context(), ratelimit.Config{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		peer, host, header string
		want               int
	}{
		"this machine":                    {"127.0.0.1:1", "127.0.0.1:8080", "", 200},
		"this machine, by IPv6":           {"[::1]:1", "[::1]:8080", "", 200},
		"this machine, by name":           {"127.0.0.1:1", "localhost:8080", "", 200},
		"another machine":                 {"192.0.2.1:1", "127.0.0.1:8080", "", 403},
		"another name":                    {"127.0.0.1:1", "evil.example:8080", "", 403},
		"the machine's name":              {"127.0.0.1:1", "192.0.2.1:8080", "", 403},
		"through a proxy on this machine": {"127.0.0.1:1", "127.0.0.1:8080", "X-Forwarded-For", 403},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/admin/", "/admin/facts.json", "/admin/key?key=ip:127.0.0.1"} {
				r := httptest.NewRequest("GET", path, nil)
				r.RemoteAddr, r.Host = c.peer, c.host
				if c.header != "" {
					r.Header.Set(c.header, "192.0.2.1")
				}
				w := httptest.NewRecorder()
				api.ServeHTTP(w, r)
				if w.Code != c.want {
					t.Errorf("%s: status %d, want %d", path, w.Code, c.want)
				}
				if c.want == 403 && strings.Contains(w.Body.String(), "hello") {
					t.Errorf("%s tells a stranger %s", path, w.Body)
				}
			}
		})
	}
}

func TestWhereThePageIs(t *testing.T) {
	for ip, want := range map[string]string{
		"127.0.0.1":   "http://base/admin/ ",
		"::1":         "http://base/admin/ ",
		"0.0.0.0":     "http://base/admin/ ",
		"::":          "http://base/admin/ ",
		"192.168.1.2": "not shown: ",
	} {
		if got := describeAdmin(&net.TCPAddr{IP: net.ParseIP(ip), Port: 8080}, "http://base"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q", ip, got)
		}
	}
}
