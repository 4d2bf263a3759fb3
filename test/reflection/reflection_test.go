// Package reflection contains only tests. They send requests with a marker everywhere. No response repeats the marker, and it
// breaks no line of the log.
package reflection_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// FuzzNothingOfARequestIsReflected sends requests that hold a text everywhere, and whose keys and errors do,
// and looks for it in what comes back. In logs it may be, but must not end a line.
func FuzzNothingOfARequestIsReflected(f *testing.F) {
	const mark = "ZQMARK" // what is looked for; in neither case a part of anything else
	answers := map[string]ratelimit.Policy{
		"denied":  {Limit: ratelimit.PerHour(1), Cost: func(*http.Request) int64 { return 2 }},
		"no key":  {Limit: ratelimit.PerHour(1)},
		"bad":     {Limit: ratelimit.PerHour(1)},
		"failed":  {Limit: ratelimit.PerHour(1), FailClosed: true},
		"allowed": {Limit: ratelimit.PerHour(1), Cost: func(*http.Request) int64 { return 0 }},
	}
	f.Fuzz(func(t *testing.T, method, text, accept, contentType string, htmx bool) {
		s := ratelimit.Must(memstore.New(memstore.Config{}))
		defer s.Close()
		marked := mark + text + mark
		for name, p := range answers {
			var logged bytes.Buffer
			denial := denial.Handler{GRPC: true}
			l := ratetest.NewLimiter(t, ratelimit.Config{
				Store:   s,
				Deny:    denial,
				Error:   denial.ServeError,
				Headers: headers.Join(ratelimit.XRateLimit, headers.IETF, headers.Spring, headers.Shadows),
				Logger:  slog.New(slog.NewJSONHandler(&logged, nil)),
			})
			p.Name, p.Key = "api", ratetest.Finds("member:"+marked, nil)
			switch name {
			case "no key":
				p.Key = ratetest.Finds("", fmt.Errorf("%w: %s", ratelimit.ErrNoKey, marked))
			case "bad":
				p.Key = ratetest.Finds("", fmt.Errorf("%w: %s", ratelimit.ErrBadRequest, marked))
			case "failed":
				p.Key = ratetest.Finds("", errors.New(marked))
			}
			r := &http.Request{
				Method: method, ProtoMajor: 2, URL: &url.URL{Path: "/" + marked, RawQuery: marked}, Host: marked, RequestURI: "/" + marked,
				RemoteAddr: marked, Header: http.Header{"Accept": {accept, marked}, "Content-Type": {contentType + marked}},
			}
			for _, h := range []string{
				"Accept-Language", "Authorization", "Cookie", "Forwarded", "Hx-Current-Url", "Origin", "Referer", "Te",
				"User-Agent", "X-Forwarded-For", "X-Ratelimit-Limit",
			} {
				r.Header[h] = []string{marked}
			}
			if htmx {
				r.Header.Set("HX-Request", "true")
			}
			w := httptest.NewRecorder()
			shadow := p
			shadow.Name, shadow.Shadow = "shadow", true
			l.Limit(p, shadow)(ratetest.OK).ServeHTTP(w, r)

			answer := fmt.Sprint(w.Header(), w.Body)
			if strings.Contains(strings.ToUpper(answer), mark) {
				t.Errorf("%s: %q", name, answer)
			}
			for line := range bytes.Lines(logged.Bytes()) {
				if !json.Valid(line) {
					t.Errorf("%s: a log line %q", name, line)
				}
			}
			for field, values := range w.Header() {
				for _, v := range values {
					if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
						t.Errorf("%s: %s: %q", name, field, v)
					}
				}
			}
		}
	})
}
