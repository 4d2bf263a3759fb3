// Package denial answers denied requests in the form that each client asks for: JSON, text, a page, or a gRPC
// status. Use it to change the words, the language or the HTML page of these answers:
//
//	answers := denial.Handler{Page: template.Must(template.ParseFiles("denied.html"))}
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Deny:  answers,            // 429
//		Error: answers.ServeError, // 400, 403 and 503
//	})
//
// Without this package a limiter answers in the same forms, with default words and a default page. To write the
// whole answer yourself, set [ratelimit.Config.Deny] to any http.Handler and read the decision with
// [ratelimit.FromContext].
//
// # Which form a client gets
//
//	Accept prefers text/html         a page, as for a browser
//	Accept prefers text/plain        the words, a line each
//	anything else, or no Accept      application/problem+json (RFC 9457)
//	HX-Request: true                 text/html, a paragraph for htmx, unless Accept prefers another form
//	gRPC, gRPC-Web (Handler.GRPC)    status 200 and grpc-status
//
// All forms have the same words, status, rate limit headers and Retry-After. Only the status for gRPC differs. By
// default, htmx 2 does not insert errors into a page: its response-targets extension does, for example. htmx 4
// inserts all of them.
//
// # What an answer contains
//
// A denial says in how long to try again. For a [ratelimit.Quota] it also says when the next period begins, in the time
// zone of the quota. For a [ratelimit.Concurrency] it says that too many requests run at once.
//
// An answer contains nothing of the request, unless [Handler.Text] puts it there. Each form escapes the words. If
// another handler has begun a response, the headers that describe it are removed, such as ETag and
// Content-Disposition. Cookies stay. Content-Encoding stays, too, because a middleware that compresses sets it.
//
// # gRPC
//
// A gRPC client understands a denial only as a grpc-status in a response with status 200. [Handler.GRPC] answers
// so: 429 becomes RESOURCE_EXHAUSTED, 400 INVALID_ARGUMENT, 403 PERMISSION_DENIED, and 503 UNAVAILABLE. The request
// must be a POST, and native gRPC must have come over HTTP/2. A page in a browser sees the grpc-status of gRPC-Web
// only if CORS exposes it.
//
// The retry policy of a gRPC client ignores Retry-After. So the response has the same time in grpc-retry-pushback-ms.
// For 400, 403 and requests that can never succeed it is -1: the client does not retry.
//
// A client asks for this form by its Content-Type. So any client can make a denial look like a success to metrics,
// to a WAF, or to the [ratelimit.FailedLogins] of an outer limiter. Set GRPC only for limiters of gRPC routes.
package denial

import (
	"io"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/answer"
)

// A Handler answers denied and refused requests in the form that the client asks for. It is an http.Handler for
// [ratelimit.Config.Deny], and its [Handler.ServeError] is for [ratelimit.Config.Error]. The zero value is the default of
// [ratelimit.Config]. The package comment lists the forms.
type Handler struct {
	// Text, if set, returns the words for a status of 429, 400, 403 or 503. The argument after is the Retry-After
	// in whole seconds: 0 if it is not known, [ratelimit.Never] if the request can never succeed. For a 429,
	// [ratelimit.FromContext] has the rest, such as [ratelimit.Decision.PeriodEnd] and
	// [ratelimit.Decision.AtOnce]. If the Text has no Title, the default words are used, in English.
	Text func(r *http.Request, status int, after time.Duration) Text

	// Page, if set, is the HTML page, usually an *html/template.Template. Its data has the fields of [Text] as
	// {{.Title}}, {{.Detail}} and {{.Language}}, also {{.Status}}, and {{.RetryAfter}} in seconds, 0 for never. If
	// it returns an error, the default page is sent. So test your page.
	Page Template

	// GRPC answers gRPC and gRPC-Web clients with status 200 and a grpc-status, which they understand. Set it only
	// for limiters of gRPC routes, see "gRPC" in the package comment. Default: they are answered like other
	// clients.
	GRPC bool
}

// ServeHTTP answers 429 for the decision of [ratelimit.FromContext]. Without a limiter there is no decision: to
// deny a request in your own code, use [ratelimit.Limiter.Admit], which also sets the headers.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d, ok := ratelimit.FromContext(r.Context()); ok && !d.Allowed {
		h.style().Deny(w, r, d)
	} else {
		h.style().Deny(w, r, nil)
	}
}

// ServeError answers 400 if err wraps [ratelimit.ErrBadRequest], 403 if it wraps [ratelimit.ErrNoKey] but not
// [ratelimit.ErrOutage], otherwise 503. The answer does not contain err.
func (h Handler) ServeError(w http.ResponseWriter, r *http.Request, err error) {
	h.style().Refuse(w, r, err)
}

func (h Handler) style() answer.Style {
	s := answer.Style{Page: h.Page, GRPC: h.GRPC}
	if text := h.Text; text != nil {
		s.Text = func(r *http.Request, status int, after time.Duration) answer.Text {
			return answer.Text(text(r, status, after))
		}
	}
	return s
}

// A Text is the words of an answer, as plain text. Each form of the answer escapes them. Control characters,
// including line breaks, become spaces.
type Text struct {
	// Language is the language tag of the words, such as "de" or "pt-BR". It becomes the Content-Language of the
	// answer and the lang of a page. Default: none.
	Language string

	// Title names the kind of answer in a few words. It should be the same for all answers of a status.
	Title string

	// Detail is a sentence that says what to do, for example when to try again. It may be empty.
	Detail string
}

// A Template writes an HTML page. An *html/template.Template is one, and escapes; a text/template does not escape.
// Template is an interface, because importing html/template adds more than three megabytes to a program.
type Template interface {
	// Execute writes the page for data to w.
	Execute(w io.Writer, data any) error
}
