package denial_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	problemJSON = "application/problem+json"
	plainText   = "text/plain; charset=utf-8"
	pageHTML    = "text/html; charset=utf-8"
	browser     = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
)

// answers returns handlers that answer 429, 400, 403 and 503 by d.
func answers(t *testing.T, d denial.Handler, after time.Duration) map[int]http.Handler {
	closed := perIP("api", ratelimit.PerHour(1))
	closed.FailClosed = true
	denies := newLimiter(t, ratelimit.Config{Store: denying(after), Deny: d})
	fails := newLimiter(t, ratelimit.Config{Store: failing(func() error { return errors.New("secret") }), Error: d.ServeError})
	return map[int]http.Handler{
		429: denies.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler),
		400: fails.Limit(ratelimit.Policy{Name: "api", Key: finds("", ratelimit.ErrBadRequest), Limit: ratelimit.PerHour(1)})(okHandler),
		403: fails.Limit(ratelimit.Policy{Name: "api", Key: noKey, Limit: ratelimit.PerHour(1)})(okHandler),
		503: fails.Limit(closed)(okHandler),
	}
}

func overHTTP2(r *http.Request) { r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0 }

// forms ask for each form of an answer.
var forms = map[string][]func(*http.Request){
	"json":     {with("Accept", "application/json")},
	"text":     {with("Accept", "text/plain")},
	"page":     {with("Accept", browser)},
	"fragment": {with("Accept", "*/*"), with("HX-Request", "true")},
	"grpc":     {with("Content-Type", "application/grpc"), overHTTP2, method("POST")},
}

// words returns the title and the detail of an answer, out of its form.
func words(t *testing.T, w *httptest.ResponseRecorder) (title, detail string) {
	t.Helper()
	switch w.Header().Get("Content-Type") {
	case problemJSON:
		var body struct{ Title, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%v in %q", err, w.Body)
		}
		return body.Title, body.Detail
	case plainText:
		title, detail, _ = strings.Cut(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
		return title, detail
	case pageHTML:
		elements := textOf(t, w.Body.String())
		if heading, isPage := elements["h1"]; isPage {
			if elements["title"] != heading {
				t.Errorf("the title is %q, the heading %q", elements["title"], heading)
			}
			return heading, elements["p"]
		}
		return elements["strong"], elements["p"]
	}
	message, err := url.PathUnescape(w.Header().Get("Grpc-Message"))
	if err != nil {
		t.Fatal(err)
	}
	title, detail, _ = strings.Cut(message, ": ")
	return title, detail
}

// textOf returns what stands in each element of an HTML text, which it wants to be well-formed.
func textOf(t *testing.T, html string) map[string]string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "br"}, xml.HTMLEntity
	texts := make(map[string]string)
	var open []string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, html)
		}
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, token.Name.Local)
			if len(open) == 1 || token.Name.Local == "p" {
				for _, a := range token.Attr {
					texts["@"+a.Name.Local] = a.Value
				}
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				texts[open[len(open)-1]] += string(token)
			}
		}
	}
	return texts
}

func TestAllFormsOfAnAnswerSayTheSame(t *testing.T) {
	want := map[int][2]string{
		429: {"Too many requests", "Try again in 3 seconds."},
		400: {"Bad request", ""},
		403: {"Forbidden", ""},
		503: {"Temporarily unavailable", "Try again in 5 seconds."},
	}
	types := map[string]string{"json": problemJSON, "text": plainText, "page": pageHTML, "fragment": pageHTML, "grpc": "application/grpc"}
	retryAfter := map[int]string{429: "3", 503: "5"}
	for status, h := range answers(t, denial.Handler{GRPC: true}, 3*time.Second) {
		for form, ask := range forms {
			w := get(h, ask...)
			if title, detail := words(t, w); title != want[status][0] || detail != want[status][1] {
				t.Errorf("%d as %s says %q, %q", status, form, title, detail)
			}
			got := w.Header()
			if got.Get("Content-Type") != types[form] || got.Get("Retry-After") != retryAfter[status] || got.Get("Cache-Control") != "no-store" || got.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%d as %s has %v", status, form, got)
			}
			if got["Content-Language"] != nil || got["Vary"] != nil {
				t.Errorf("%d as %s has %v, which nobody asked for", status, form, got)
			}
			if (status == 429) != (got.Get("X-RateLimit-Limit") == "1") {
				t.Errorf("%d as %s: X-RateLimit-Limit %q", status, form, got["X-Ratelimit-Limit"])
			}
			if form != "grpc" && w.Code != status {
				t.Errorf("%d as %s has status %d", status, form, w.Code)
			}
		}
	}
}

func TestAHeadIsAnsweredAsAGetWithoutABody(t *testing.T) {
	for status, h := range answers(t, denial.Handler{}, 3*time.Second) {
		for _, form := range []string{"json", "text", "page", "fragment"} {
			full := get(h, forms[form]...)
			head := get(h, append(slices.Clone(forms[form]), method("HEAD"))...)
			if head.Body.Len() != 0 || head.Code != full.Code {
				t.Errorf("%d as %s: %d with the body %q", status, form, head.Code, head.Body)
			}
			if length := strconv.Itoa(full.Body.Len()); head.Header().Get("Content-Length") != length || full.Header().Get("Content-Length") != length {
				t.Errorf("%d as %s: Content-Length %q and %q of %s", status, form, head.Header().Get("Content-Length"), full.Header().Get("Content-Length"), length)
			}
			for name := range full.Header() {
				if got, want := head.Header().Get(name), full.Header().Get(name); got != want && name != "X-Ratelimit-Reset" {
					t.Errorf("%d as %s: %s is %q, of the GET %q", status, form, name, got, want)
				}
			}
		}
	}
}

func TestADenialSaysInWordsWhenToComeBack(t *testing.T) {
	const day = 24 * time.Hour
	for after, want := range map[time.Duration]string{
		time.Microsecond:                  "Try again in 1 second.",
		time.Second:                       "Try again in 1 second.",
		time.Second + time.Microsecond:    "Try again in 2 seconds.",
		119 * time.Second:                 "Try again in 119 seconds.",
		119*time.Second + time.Nanosecond: "Try again in 2 minutes.",
		121 * time.Second:                 "Try again in about 3 minutes.",
		time.Hour:                         "Try again in 60 minutes.",
		119*time.Minute + time.Second:     "Try again in about 120 minutes.",
		2 * time.Hour:                     "Try again in 2 hours.",
		5*time.Hour + 7*time.Minute:       "Try again in about 6 hours.",
		48*time.Hour - time.Second:        "Try again in about 48 hours.",
		30 * day:                          "Try again in 30 days.",
		1<<53*time.Microsecond - 1:        "Try again in about 104250 days.",
		ratelimit.Never:                   "This request asks for more than its limit ever allows.",
	} {
		if _, detail := words(t, get(answers(t, denial.Handler{}, after)[429])); detail != want {
			t.Errorf("%v: %q, want %q", after, detail, want)
		}
	}
}

func TestADenialForHtmxIsAPartOfAPage(t *testing.T) {
	page := template.Must(template.New("").Parse("<html>mine"))
	for accept, want := range map[string]string{
		"*/*":              pageHTML,
		"":                 pageHTML,
		"text/html":        pageHTML,
		browser:            pageHTML,
		"image/png":        pageHTML,
		"text/plain":       plainText,
		"application/json": problemJSON,
	} {
		for status, h := range answers(t, denial.Handler{Page: page}, time.Second) {
			w := get(h, with("HX-Request", "true"), with("Accept", accept))
			if got := w.Header().Get("Content-Type"); got != want {
				t.Errorf("%d, Accept %q: %s, want %s", status, accept, got, want)
			}
			if body := w.Body.String(); want == pageHTML && (!strings.HasPrefix(body, `<p role="alert" lang="en">`) || strings.Count(body, "<p") != 1 || !strings.HasSuffix(body, "</p>\n")) {
				t.Errorf("%d, Accept %q: %s", status, accept, body)
			}
		}
	}
	if w := get(answers(t, denial.Handler{}, time.Second)[429], with("HX-Request", "false")); w.Header().Get("Content-Type") != problemJSON {
		t.Errorf("without htmx: %s", w.Header().Get("Content-Type"))
	}
}

// A Content-Security-Policy of default-src 'none' forbids nothing that the page has.
func TestThePageNeedsNothingElse(t *testing.T) {
	page := get(answers(t, denial.Handler{}, time.Second)[429], with("Accept", browser)).Body.String()
	if found := regexp.MustCompile(`(?i)<(script|style|link|img|base|form|iframe)|style=|src=|href=|\bon\w+=|http-equiv|https?:`).FindString(page); found != "" {
		t.Errorf("the page has %s", found)
	}
	for _, want := range []string{"<!DOCTYPE html>\n<html lang=\"en\">", `<meta charset="utf-8">`, `name="viewport"`, "<title>", "<main>", "<h1>"} {
		if strings.Count(page, want) != 1 {
			t.Errorf("the page has not exactly one %s", want)
		}
	}
}

func TestWordsOfOnesOwn(t *testing.T) {
	d := denial.Handler{GRPC: true, Text: func(r *http.Request, status int, after time.Duration) denial.Text {
		switch r.Header.Get("Accept-Language") {
		case "de":
			return denial.Text{Language: "de", Title: fmt.Sprintf("Gründe für %d", status), Detail: fmt.Sprintf("<b>Nochmal</b> in %v & \"sofort\"", after)}
		case "bad":
			return denial.Text{Language: "de\r\nX: \"", Title: "a\r\nb\x00\u0085c\xff", Detail: "\n"}
		}
		return denial.Text{Detail: "without a title"}
	}}
	afters := map[int]string{429: "3s", 400: "0s", 403: "0s", 503: "5s"}
	for status, h := range answers(t, d, 2100*time.Millisecond) {
		for form, ask := range forms {
			title, detail := "Gründe für "+strconv.Itoa(status), `<b>Nochmal</b> in `+afters[status]+` & "sofort"`
			w := get(h, append(slices.Clone(ask), with("Accept-Language", "de"))...)
			if gotTitle, gotDetail := words(t, w); gotTitle != title || gotDetail != detail || w.Header().Get("Content-Language") != "de" {
				t.Errorf("%d as %s: %q, %q in %q", status, form, gotTitle, gotDetail, w.Header().Get("Content-Language"))
			}
			if form == "page" || form == "fragment" {
				if body := w.Body.String(); strings.Contains(body, "<b>") || !strings.Contains(body, `lang="de"`) {
					t.Errorf("%d as %s: %s", status, form, body)
				}
			}

			w = get(h, append(slices.Clone(ask), with("Accept-Language", "bad"))...)
			if title, detail := words(t, w); title != "a  b  c\uFFFD" || detail != "" || w.Header()["Content-Language"] != nil {
				t.Errorf("%d as %s: %q, %q in %q", status, form, title, detail, w.Header()["Content-Language"])
			}

			w = get(h, ask...)
			if _, detail := words(t, w); strings.Contains(detail, "without") || w.Header().Get("Content-Language") != "en" {
				t.Errorf("%d as %s: %q in %q, want the default", status, form, detail, w.Header().Get("Content-Language"))
			}
		}
	}
}

func TestAPageOfOnesOwn(t *testing.T) {
	var told time.Duration
	d := denial.Handler{
		Text: func(r *http.Request, _ int, after time.Duration) denial.Text {
			told = after
			return denial.Text{Language: "de", Title: "Zu viel", Detail: r.URL.Query().Get("q")}
		},
		Page: template.Must(template.New("").Parse(`{{.Language}}|{{.Status}}|{{.RetryAfter}}|{{.Title}}|{{.Detail}}`)),
	}
	query := func(r *http.Request) { r.URL.RawQuery = "q=%3Cscript%3E" }
	for after, want := range map[time.Duration]string{
		1500 * time.Millisecond: "de|429|2|Zu viel|&lt;script&gt;",
		ratelimit.Never:         "de|429|0|Zu viel|&lt;script&gt;",
	} {
		w := get(answers(t, d, after)[429], with("Accept", browser), query)
		if got := w.Body.String(); got != want || w.Code != 429 || w.Header().Get("Content-Length") != strconv.Itoa(len(want)) {
			t.Errorf("%d %v %s, want %s", w.Code, w.Header(), got, want)
		}
		if after == ratelimit.Never && told != ratelimit.Never {
			t.Errorf("the words are told %v of never", told)
		}
	}

	d.Page = template.Must(template.New("").Parse(`half of it, then {{.Nonsense}}`))
	w := get(answers(t, d, time.Second)[429], with("Accept", browser), query)
	if title, detail := words(t, w); title != "Zu viel" || detail != "<script>" || w.Code != 429 || strings.Contains(w.Body.String(), "half") {
		t.Errorf("instead of a page that fails: %d %s", w.Code, w.Body)
	}
}

func TestADenialRemovesWhatDescribesAnotherResponse(t *testing.T) {
	gone := []string{
		"Content-Disposition", "Content-Language", "Content-Location", "Content-Range", "ETag", "Last-Modified",
		"CDN-Cache-Control", "Surrogate-Control", "X-Accel-Expires", // these outrank Cache-Control
	}
	for status, limited := range answers(t, denial.Handler{GRPC: true}, time.Second) {
		for form, ask := range forms {
			w := get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, name := range append([]string{"Content-Length", "Content-Type", "Content-Encoding", "Set-Cookie", "Vary", "Content-Security-Policy"}, gone...) {
					w.Header().Set(name, "another's")
				}
				limited.ServeHTTP(w, r)
			}), ask...)
			for _, name := range gone {
				if got := w.Header()[http.CanonicalHeaderKey(name)]; got != nil {
					t.Errorf("%d as %s has %s %q", status, form, name, got)
				}
			}
			for _, name := range []string{"Content-Encoding", "Set-Cookie", "Vary", "Content-Security-Policy"} {
				if got := w.Header().Values(name); !slices.Equal(got, []string{"another's"}) {
					t.Errorf("%d as %s: %s is %q", status, form, name, got)
				}
			}
			if w.Header().Get("Content-Length") != strconv.Itoa(w.Body.Len()) || w.Header().Get("Content-Type") == "another's" {
				t.Errorf("%d as %s: %v", status, form, w.Header())
			}
		}
	}
}

func TestADenialWithoutADecision(t *testing.T) {
	w := get(denial.Handler{})
	const want = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429}` + "\n"
	if w.Code != 429 || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAProblemNamesThePoliciesThatDenied(t *testing.T) {
	s := storeFunc(func(charges []store.Charge, states []store.State) bool {
		for i := range states {
			states[i].Allowed = charges[i].Policy == "wide"
		}
		return false
	})
	shadow := perIP("shadow", ratelimit.PerHour(1))
	shadow.Shadow = true
	l := newLimiter(t, ratelimit.Config{Store: s})
	w := get(l.Limit(perIP("a/b", ratelimit.PerHour(1)), perIP("wide", ratelimit.PerHour(1)), shadow, perIP("c", ratelimit.PerHour(1)))(okHandler))
	if !strings.HasSuffix(w.Body.String(), `,"violated-policies":["a/b","c"]}`+"\n") {
		t.Errorf("body %s", w.Body)
	}
}

// FuzzDenial checks that an answer is whole in every form, whatever a request asks for and the words are.
func FuzzDenial(f *testing.F) {
	denies := storeFunc(func(_ []store.Charge, states []store.State) bool { return false })
	f.Fuzz(func(t *testing.T, accept, contentType, htmx, language, title, detail string, grpc bool) {
		if strings.ContainsAny(title+detail, "\uFFFE\uFFFF") {
			t.Skip("the XML decoder by which the pages are read refuses these")
		}
		text := denial.Text{Language: language, Title: title, Detail: detail}
		l := newLimiter(t, ratelimit.Config{
			Store: denies,
			Deny:  denial.Handler{GRPC: grpc, Text: func(*http.Request, int, time.Duration) denial.Text { return text }},
		})
		ask := []func(*http.Request){with("Accept", accept), with("Content-Type", contentType), with("HX-Request", htmx), overHTTP2, method("POST")}
		w := get(l.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler), ask...)

		body := w.Body.String()
		if w.Header().Get("Content-Length") != strconv.Itoa(len(body)) {
			t.Errorf("Content-Length %s of %d", w.Header().Get("Content-Length"), len(body))
		}
		if !utf8.ValidString(body) || strings.ContainsFunc(strings.ReplaceAll(body, "\n", ""), unicode.IsControl) {
			t.Errorf("body %q", body)
		}
		for name, values := range w.Header() {
			if strings.ContainsFunc(strings.Join(values, ""), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%s: %q", name, values)
			}
		}
		wantTitle, wantDetail := onOneLine(title), onOneLine(detail)
		if wantTitle == "" {
			wantTitle, wantDetail = "Too many requests", "Try again in 1 second."
		}
		status := 429
		switch kind := w.Header().Get("Content-Type"); kind {
		case problemJSON, plainText, pageHTML:
			if gotTitle, gotDetail := words(t, w); gotTitle != wantTitle || gotDetail != wantDetail {
				t.Errorf("%s says %q, %q, want %q, %q", kind, gotTitle, gotDetail, wantTitle, wantDetail)
			}
			if strings.HasPrefix(body, "<!DOCTYPE") && htmx == "true" {
				t.Error("htmx got a whole page")
			}
			if tags := strings.Count(body, "<"); kind == pageHTML && tags > 18 {
				t.Errorf("%d tags: %s", tags, body)
			}
		default:
			status = 200
			if !grpc {
				t.Errorf("Content-Type %q of an answer that is not for gRPC", kind)
			}
			want := wantTitle
			if wantDetail != "" {
				want += ": " + wantDetail
			}
			if got, err := url.PathUnescape(w.Header().Get("Grpc-Message")); got != want || err != nil || body != "" || !strings.HasPrefix(kind, "application/grpc") {
				t.Errorf("%s: grpc-message %q, error %v, want %q", kind, got, err, want)
			}
		}
		if w.Code != status {
			t.Errorf("status %d", w.Code)
		}
	})
}

// onOneLine is what becomes of any bytes as words.
func onOneLine(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// BenchmarkDenial is a request that is denied, without what the store costs.
func BenchmarkDenial(b *testing.B) {
	l, err := ratelimit.New(ratelimit.Config{Store: denying(3 * time.Second), Deny: denial.Handler{GRPC: true}})
	if err != nil {
		b.Fatal(err)
	}
	h := l.Limit(perIP("api", ratelimit.PerMinute(60)))(okHandler)
	for _, c := range []struct{ name, header, value string }{
		{"json", "Accept", "application/json, text/plain, */*"},
		{"text", "Accept", "text/plain"},
		{"page", "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		{"fragment", "HX-Request", "true"},
		{"long", "Accept", strings.Repeat("a/b,", 16<<10)},
		{"grpc", "Content-Type", "application/grpc"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set(c.header, c.value)
			overHTTP2(r)
			b.ReportAllocs()
			for b.Loop() {
				w := ratetest.NewDiscard()
				h.ServeHTTP(w, r)
			}
		})
	}
}
