package denial_test

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// show prints the answer to a request.
func show(h http.Handler, header ...string) {
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Print(w.Code, " ", w.Header().Get("Content-Type"), "\n", w.Body)
}

// stopped is a clock that stands still, so that the examples print the same each time.
func stopped() time.Time { return time.Unix(1_800_000_000, 0) }

// The default answers, in the form that each client asks for.
func ExampleHandler() {
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: stopped}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: []ratelimit.Policy{{Name: "exports", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(3 * time.Hour)}},
	}))
	handler := limiter.Handler(hello)

	printResponse(handler, "GET", "/")
	show(handler)
	show(handler, "Accept", "text/plain")
	show(handler, "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	show(handler, "HX-Request", "true")
	// Output:
	// GET / 200
	// 429 application/problem+json
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"detail":"Try again in 3 hours.","violated-policies":["exports"]}
	// 429 text/plain; charset=utf-8
	// Too many requests
	// Try again in 3 hours.
	// 429 text/html; charset=utf-8
	// <!DOCTYPE html>
	// <html lang="en">
	// <head>
	// <meta charset="utf-8">
	// <meta name="viewport" content="width=device-width, initial-scale=1">
	// <meta name="color-scheme" content="light dark">
	// <title>Too many requests</title>
	// </head>
	// <body>
	// <main>
	// <h1>Too many requests</h1>
	// <p>Try again in 3 hours.</p>
	// </main>
	// </body>
	// </html>
	// 429 text/html; charset=utf-8
	// <p role="alert" lang="en"><strong>Too many requests</strong><br>Try again in 3 hours.</p>
}

// Words in two languages, and a custom page. golang.org/x/text/language matches Accept-Language by all its rules. With
// two languages, the first one that a browser names is often enough.
func ExampleHandler_languages() {
	german := func(r *http.Request, status int, after time.Duration) denial.Text {
		if !strings.HasPrefix(r.Header.Get("Accept-Language"), "de") {
			return denial.Text{} // the default, English
		}
		text := denial.Text{Language: "de", Title: "Zu viele Anfragen"}
		if status != http.StatusTooManyRequests {
			text.Title = "Zur Zeit nicht möglich"
		}
		if after > 0 && after != ratelimit.Never {
			text.Detail = fmt.Sprintf("Bitte nach %s Uhr noch einmal.", stopped().Add(after).UTC().Format("15:04"))
		}
		return text
	}
	page := template.Must(template.New("denial").Parse(
		`<!DOCTYPE html><html lang="{{.Language}}"><title>{{.Title}}</title><h1>{{.Title}}</h1>{{.Detail}}</html>` + "\n"))
	denial := denial.Handler{Text: german, Page: page}

	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: stopped}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: []ratelimit.Policy{{Name: "exports", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(3 * time.Hour)}},
		Deny:     denial,
		Error:    denial.ServeError,
	}))
	handler := limiter.Handler(hello)

	printResponse(handler, "GET", "/")
	show(handler, "Accept-Language", "de-AT,de;q=0.9,en;q=0.8", "Accept", "text/plain")
	show(handler, "Accept-Language", "de", "Accept", "text/html")
	show(handler, "Accept-Language", "en", "Accept", "text/html")
	// Output:
	// GET / 200
	// 429 text/plain; charset=utf-8
	// Zu viele Anfragen
	// Bitte nach 11:00 Uhr noch einmal.
	// 429 text/html; charset=utf-8
	// <!DOCTYPE html><html lang="de"><title>Zu viele Anfragen</title><h1>Zu viele Anfragen</h1>Bitte nach 11:00 Uhr noch einmal.</html>
	// 429 text/html; charset=utf-8
	// <!DOCTYPE html><html lang="en"><title>Too many requests</title><h1>Too many requests</h1>Try again in 3 hours.</html>
}

// A custom handler that answers in the format of its API. The rate limit headers, Retry-After and Cache-Control are
// already set when it is called. The handler chooses status and body.
func Example_ownHandler() {
	type envelope struct {
		OK    bool `json:"ok"`
		Error struct {
			Code     string   `json:"code"`
			Policies []string `json:"policies"`
			Limit    string   `json:"limit"`
			RetryMS  int64    `json:"retry_ms,omitempty"`
		} `json:"error"`
	}
	deny := func(w http.ResponseWriter, r *http.Request) {
		d, _ := ratelimit.FromContext(r.Context()) // always there in Config.Deny
		var e envelope
		e.Error.Code = "rate_limited"
		e.Error.Policies = d.Denied()
		if t := d.Tightest(); t != nil { // nil where only hidden policies apply
			e.Error.Limit = t.Limit.String()
		}
		status := http.StatusTooManyRequests
		if after := d.RetryAfter(); after == ratelimit.Never {
			status, e.Error.Code = http.StatusRequestEntityTooLarge, "too_large"
		} else {
			e.Error.RetryMS = after.Milliseconds()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(e)
	}

	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: stopped}))
	defer buckets.Close()
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: buckets,
		Policies: []ratelimit.Policy{{
			Name:  "rows",
			Key:   ratelimit.RemoteIP(),
			Limit: ratelimit.PerMinute(600).WithBurst(100),
			Cost: func(r *http.Request) int64 {
				if r.Header.Get("Rows") == "all" {
					return 1000
				}
				return 80
			},
		}},
		Deny: http.HandlerFunc(deny),
	}))
	handler := limiter.Handler(hello)

	printResponse(handler, "GET", "/")
	show(handler)
	show(handler, "Rows", "all")
	// Output:
	// GET / 200
	// 429 application/json
	// {"ok":false,"error":{"code":"rate_limited","policies":["rows"],"limit":"600/1m burst 100","retry_ms":6000}}
	// 413 application/json
	// {"ok":false,"error":{"code":"too_large","policies":["rows"],"limit":"600/1m burst 100"}}
}
