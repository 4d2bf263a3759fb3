package admin_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
)

// An element is one of a page, with the texts inside of it.
type element struct {
	name   string
	attr   map[string]string
	text   string
	parent *element
}

// within reports whether e is inside of an element of a name.
func (e *element) within(name string) bool {
	for e = e.parent; e != nil; e = e.parent {
		if e.name == name {
			return true
		}
	}
	return false
}

// parsePage parses a page, whose elements must all be closed.
func parsePage(t *testing.T, w *httptest.ResponseRecorder) (all []*element) {
	t.Helper()
	if kind := w.Header().Get("Content-Type"); kind != "text/html; charset=utf-8" {
		t.Fatalf("Content-Type %q: %.300s", kind, w.Body)
	}
	d := xml.NewDecoder(strings.NewReader(w.Body.String()))
	d.Strict = true
	var open *element
	for {
		token, err := d.Token()
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attr: make(map[string]string), parent: open}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			all = append(all, e)
			open = e
		case xml.EndElement:
			open = open.parent
		case xml.CharData:
			for e := open; e != nil; e = e.parent {
				e.text += string(token)
			}
		case xml.Comment:
			t.Error("a comment tells how the page is made")
		}
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, w.Body)
		}
	}
}

// checkPage checks what must hold for every page: nothing that its Content-Security-Policy forbids, and what a screen
// reader needs.
func checkPage(t *testing.T, w *httptest.ResponseRecorder) []*element {
	t.Helper()
	all := parsePage(t, w)
	ids, count := make(map[string]*element), make(map[string]int)
	for _, e := range all {
		count[e.name]++
		if id := e.attr["id"]; id != "" {
			if ids[id] != nil {
				t.Errorf("two elements have the id %q", id)
			}
			ids[id] = e
		}
	}
	for _, name := range []string{"html", "head", "title", "body", "main", "h1"} {
		if count[name] != 1 {
			t.Errorf("%d elements %s, want 1", count[name], name)
		}
	}
	level := 0
	statuses := 0
	for _, e := range all {
		for name, value := range e.attr {
			if strings.HasPrefix(name, "on") || name == "style" || name != "value" && strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), "javascript:") {
				t.Errorf("<%s %s=%q>: the Content-Security-Policy forbids it", e.name, name, value)
			}
			if slices.Contains([]string{"aria-labelledby", "aria-describedby", "for", "list"}, name) && ids[value] == nil {
				t.Errorf("<%s %s=%q>: there is no such element", e.name, name, value)
			}
			if slices.Contains([]string{"src", "href", "action"}, name) && (strings.Contains(value, "//") || strings.HasPrefix(value, "/")) {
				t.Errorf("<%s %s=%q>: must be relative", e.name, name, value)
			}
		}
		switch e.name {
		case "script":
			if e.text != "" || !slices.Contains([]string{"page.js", "charts.js"}, strings.TrimPrefix(e.attr["src"], "../")) {
				t.Errorf("a script that is not the page's: %q %q", e.attr["src"], e.text)
			}
		case "style", "iframe", "object", "embed", "base", "link":
			if e.name != "link" || e.attr["rel"] != "stylesheet" && e.attr["rel"] != "icon" {
				t.Errorf("an element %s", e.name)
			}
		case "h1", "h2", "h3", "h4":
			if now := int(e.name[1] - '0'); now > level+1 {
				t.Errorf("%s %q after an h%d: a level is left out", e.name, e.text, level)
			} else {
				level = now
			}
			if strings.TrimSpace(e.text) == "" {
				t.Errorf("an empty %s", e.name)
			}
		case "input":
			if e.attr["type"] == "hidden" {
				break
			}
			if label := slices.IndexFunc(all, func(l *element) bool { return l.name == "label" && l.attr["for"] == e.attr["id"] }); label < 0 || e.attr["id"] == "" || strings.TrimSpace(all[label].text) == "" {
				t.Errorf("no label for the input %q", e.attr["name"])
			}
		case "button", "a", "th", "option", "caption":
			if strings.TrimSpace(e.text) == "" && e.attr["value"] == "" {
				t.Errorf("<%s> %v has no text", e.name, e.attr)
			}
			if e.name == "button" && e.attr["type"] != "submit" {
				t.Errorf("button %q: type %q", e.text, e.attr["type"])
			}
			if e.name == "th" && e.attr["scope"] == "" {
				t.Errorf("th %q has no scope", e.text)
			}
		case "img":
			if _, ok := e.attr["alt"]; !ok {
				t.Error("an img without alt")
			}
		case "svg":
			if e.attr["aria-hidden"] != "true" && (e.attr["role"] != "img" || e.attr["aria-label"] == "") {
				t.Errorf("an svg without a text: %v", e.attr)
			}
		case "table":
			if i := slices.Index(all, e); i+1 >= len(all) || all[i+1].name != "caption" {
				t.Error("a table without a caption")
			}
		case "form":
			if m := e.attr["method"]; m == "get" && e.attr["role"] != "search" {
				t.Errorf("a form to %q by GET", e.attr["action"])
			}
		}
		if e.attr["role"] == "status" || e.attr["aria-live"] != "" {
			statuses++
		}
		if e.attr["role"] == "meter" && (e.attr["aria-valuenow"] == "" || e.attr["aria-valuemax"] == "" || e.attr["aria-valuetext"] == "" || e.attr["aria-labelledby"] == "") {
			t.Errorf("a meter without a value or a name: %v", e.attr)
		}
		if _, ok := e.attr["data-live"]; ok && e.attr["id"] == "" {
			t.Errorf("<%s data-live> without an id", e.name)
		}
	}
	if statuses > 1 {
		t.Errorf("%d elements announce what changes: numbers would be read aloud", statuses)
	}
	return all
}

// The hostile texts of clients. Each has a word to look for.
var hostile = []string{
	`canary<script>alert(1)</script>`, `canary" onmouseover="alert(1)`, `canary' style='x`, `canary</code></h1><img src=x onerror=alert(1)>`,
	`canary{{.Host}}`, "canary\x00\x1b[2J", "canary\u202egpj.exe", "canary\u2028\u2029", "canary\xff\xfe", `canary&lt;b&gt;`, "canary\r\nSet-Cookie: a=b",
	`javascript:canary`, `canary;]]><!--`, strings.Repeat("canary", 100), " canary ",
}

func TestPagesAreWellFormedAndAccessible(t *testing.T) {
	s := newSite(t, admin.Config{Title: `Tom & "Jerry" <b>`}, ratelimit.Config{Policies: []ratelimit.Policy{
		api,
		{Name: "locked", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(1), LockFor: time.Hour, Shadow: true, FailClosed: true, Hidden: true},
		{Name: "tiers", Key: ratelimit.RemoteIP(), LimitFunc: func(*http.Request) ratelimit.Limit { return ratelimit.PerDay(7) }},
	}})
	s.use("192.0.2.1", 7)
	for _, key := range hostile {
		for range 6 {
			s.limiter.Take(context.Background(), api, key, 1)
		}
	}
	if _, err := s.limiter.Block(context.Background(), api, "ip:192.0.2.2", time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	for _, access := range []admin.Access{admin.View, admin.Change} {
		s.access = access
		for _, path := range []string{"", "top", "top?policy=api", "top?policy=tiers", "key?key=ip:192.0.2.1", "key?policy=locked&key=ip:192.0.2.1&done=reset", "key?key=ip:192.0.2.2", "key?key=unused", "blocks"} {
			t.Run(fmt.Sprint(access, "/", path), func(t *testing.T) {
				w := s.get(path, asBrowser)
				s.want(w, 200)
				all := checkPage(t, w)
				changes := 0
				for _, e := range all {
					if e.name == "form" && e.attr["method"] == "post" {
						changes++
					}
				}
				want := 0
				if access == admin.Change {
					want = map[bool]int{true: 12}[strings.HasPrefix(path, "key")]
					if path == "" || path == "blocks" {
						want = 2 // unblock
					}
				}
				if changes != want {
					t.Errorf("%d forms for changes, want %d", changes, want)
				}
			})
		}
		for _, path := range []string{"nowhere", "key", "key?policy=<b>&key=x", "key?key=" + strings.Repeat("x", 10<<10)} {
			w := s.get(path, asBrowser)
			if w.Code < 400 {
				t.Errorf("%.20s: status %d", path, w.Code)
			}
			checkPage(t, w)
		}
	}
}

// Whatever a key has in it, the page shows it as text, links to it, and the link leads to its buckets.
func TestHostileKeys(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	for _, key := range hostile {
		s.limiter.Reset(context.Background(), api, key)
		for range 7 {
			s.limiter.Take(context.Background(), api, key, 1)
		}
	}
	seen := make(map[string]bool) // there are two lists
	for _, e := range checkPage(t, s.get("top?policy=api", asBrowser)) {
		if e.name != "a" || !e.within("th") || seen[e.attr["href"]] {
			continue
		}
		seen[e.attr["href"]] = true
		w := s.get(e.attr["href"], asBrowser)
		s.want(w, 200)
		all := checkPage(t, w)
		if !strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%q leads to a page without the key", e.attr["href"])
		}
		i := slices.IndexFunc(all, func(e *element) bool { return e.attr["data-bucket"] == "api" })
		if i < 0 || all[i].attr["data-state"] != "empty" {
			t.Errorf("%q leads to another bucket: %v", e.attr["href"], all[i].attr)
		}
		// The forms name the same bucket, byte by byte.
		for _, f := range all {
			if f.name == "input" && f.attr["name"] == "key_b64" {
				w := s.post("key/reset", map[string][]string{"policy": {"api"}, "key_b64": {f.attr["value"]}})
				s.want(w, 303)
				if w := s.get(strings.TrimPrefix(w.Header().Get("Location"), "../"), asBrowser); !strings.Contains(w.Body.String(), "5 of 5 tokens") {
					t.Errorf("%q was not reset", e.attr["href"])
				}
				break
			}
		}
	}
	if want := len(hostile) - 1; len(seen) != want { // one is longer than a Top keeps
		t.Errorf("%d keys have links, want %d", len(seen), want)
	}
	for _, path := range []string{"", "top?policy=api", "facts.json", "top.json"} {
		body := s.get(path).Body.String()
		for _, raw := range []string{"<script>alert", "<img src=x", `canary" onmouseover`, "\x00", "\x1b", "\u202e", "\u2028", "\xff", "<!--"} {
			if strings.Contains(body, raw) {
				t.Errorf("%s holds %q", path, raw)
			}
		}
	}
	if log := s.log.String(); strings.Contains(log, "\u202e") || strings.Contains(log, "\x1b") || strings.Count(log, "\n") != len(seen) {
		t.Errorf("log: %q", log)
	}
}
