package admin_test

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
)

// Whatever a request asks for: the answer is a page without a fault, or a sentence. A change is made for the bucket
// that was named, or not at all, and other buckets stay as they are.
func FuzzRequests(f *testing.F) {
	log := new(strings.Builder)
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{api}}))
	h := admin.Handler(limiter, func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, admin.Config{Logger: textLogger(log)})
	f.Fuzz(func(t *testing.T, policy, key, d, n, query string, action uint8) {
		ctx := t.Context()
		log.Reset()
		for _, k := range []string{"other", key} {
			if k != "" {
				limiter.Reset(ctx, api, k)
				limiter.Take(ctx, api, k, 3)
			}
		}
		usable := key != "" && len(key) <= 4096
		values := url.Values{"policy": {policy}, "key": {key}, "for": {d}, "n": {n}, "force": {"1"}}

		w := serve(h, "GET", "key.json?key_b64="+base64.RawURLEncoding.EncodeToString([]byte(key)), "")
		if w.Code == 200 != usable {
			t.Errorf("%d bytes of a key: status %d", len(key), w.Code)
		}
		for _, b := range w.Body.Bytes() {
			if b >= 0x7f || b < ' ' && b != '\n' {
				t.Fatalf("%#x in JSON", b)
			}
		}
		if plain := !strings.ContainsFunc(query, func(r rune) bool { return r <= ' ' || r >= 0x7f }); plain && action&4 == 0 { // or no server would pass it on
			w := serve(h, "GET", "key?"+strings.ReplaceAll(query, "#", ""), "", asBrowser)
			if checkPage(t, w); w.Code >= 500 {
				t.Errorf("status %d", w.Code)
			}
		}

		change := []string{"refund", "block", "unblock", "reset"}[action%4]
		w = serve(h, "POST", "key/"+change, values.Encode(), map[bool]func(*http.Request){true: asBrowser, false: asJSON}[action&8 == 0])
		switch {
		case w.Code == 303, w.Code == 200:
			if policy != "api" || !usable {
				t.Errorf("%s of policy %q, %d bytes of a key: status %d", change, policy, len(key), w.Code)
			}
		case w.Code < 400 || w.Code >= 500:
			t.Errorf("%s: status %d", change, w.Code)
		}
		if kind := w.Header().Get("Content-Type"); strings.HasPrefix(kind, "text/html") {
			if checkPage(t, w); !utf8.Valid(w.Body.Bytes()) {
				t.Error("the page is not UTF-8")
			}
		}
		if strings.ContainsAny(w.Header().Get("Location"), "\r\n\x00 ") {
			t.Errorf("Location %q", w.Header().Get("Location"))
		}
		if change == "block" && w.Code < 400 {
			if r, err := limiter.Peek(ctx, api, key); err != nil || !r.Blocked || r.RetryAfter > 366*24*time.Hour {
				t.Errorf("blocked for %v, %v", r.RetryAfter, err)
			}
		}
		if r, err := limiter.Peek(ctx, api, "other"); key != "other" && (err != nil || r.Blocked || r.Remaining != 2) {
			t.Errorf("another bucket has changed: %+v, %v", r, err)
		}
		for line := range strings.SplitSeq(log.String(), "\n") {
			if strings.ContainsFunc(line, func(r rune) bool { return r == utf8.RuneError || r < ' ' || r == 0x7f || r == '\u202e' }) {
				t.Errorf("log: %q", line)
			}
		}
	})
}

// A body is read as what its type says, or refused, and never changes a bucket that it does not name.
func FuzzBodies(f *testing.F) {
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{api}}))
	h := admin.Handler(limiter, func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, admin.Config{Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, body string, asJSON bool) {
		ctx := context.Background()
		limiter.Reset(ctx, api, "~other~")
		limiter.Take(ctx, api, "~other~", 3)
		kind := map[bool]string{true: "application/json", false: "application/x-www-form-urlencoded"}[asJSON]
		for _, action := range []string{"refund", "block", "unblock", "reset"} {
			w := serve(h, "POST", "key/"+action, body, func(r *http.Request) { r.Header.Set("Content-Type", kind) })
			if w.Code >= 500 || w.Code < 400 && w.Code != 303 && w.Code != 200 {
				t.Errorf("%s: status %d: %s", action, w.Code, w.Body)
			}
		}
		named := strings.Contains(body, "~") || strings.ContainsAny(body, `%\`) || strings.Contains(body, "b64")
		if r, err := limiter.Peek(ctx, api, "~other~"); !named && (err != nil || r.Remaining != 2 || r.Blocked) {
			t.Errorf("another bucket has changed: %+v, %v", r, err)
		}
	})
}
