// Package denial answers requests that are denied or refused in the form that their clients ask for, with your words and
// your page.
package denial

import (
	"io"
	"net/http"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/answer"
)

// A Handler answers requests that do not go on, in the form that their clients want, with words and a page of
// your own if you like. The zero value is what [ratelimit.Config] has by default. As Config.Deny it answers 429, and its
// ServeError, as Config.Error, 400, 403 or 503:
//
//	answers := denial.Handler{Text: words}
//	limiter, err := ratelimit.New(ratelimit.Config{Deny: answers, Error: answers.ServeError, …})
//
// What an answer looks like is for the request to say:
//
//	Accept prefers text/html         a page, as for a browser
//	Accept prefers text/plain        the words, a line each
//	anything else, or no Accept      application/problem+json (RFC 9457)
//	HX-Request: true                 text/html, a paragraph to swap into a page, unless Accept prefers another
//
// All of them say the same, and have the same status, rate limit headers and Retry-After. For gRPC's clients, see
// GRPC. htmx 2 swaps no error into a page unless told to, by its response-targets extension for example; htmx 4
// swaps all.
//
// Nothing of the request appears in an answer, unless Text puts it there, and that is escaped. Headers that
// describe the response which another handler began are removed, such as ETag and Content-Disposition; cookies
// stay, and so does Content-Encoding, which a middleware sets that compresses whatever is written inside.
type Handler struct {
	// Text, if set, chooses the words. status is 429, 400, 403 or 503. after is when to come back: the Retry-After in
	// whole seconds, ratelimit.Never if the request can never succeed, or 0 if nobody knows. For a 429,
	// [ratelimit.FromContext] tells the rest. A Text without a Title stands for the default, which is English. If Text
	// is set, Content-Language tells which language was chosen.
	Text func(r *http.Request, status int, after time.Duration) Text

	// Page, if set, writes the page: an *html/template.Template, which escapes. It is executed with the
	// fields of Text, that is {{.Title}}, {{.Detail}} and {{.Language}}, as well as {{.Status}}, and
	// {{.RetryAfter}} in seconds, 0 for never. If it fails, the default page is sent: have a test show yours.
	Page Template

	// GRPC answers clients of gRPC and gRPC-Web with status 200, and RESOURCE_EXHAUSTED (429), INVALID_ARGUMENT (400),
	// PERMISSION_DENIED (403) or UNAVAILABLE (503) in grpc-status, which they understand. Default: they are answered as
	// others are.
	//
	// Set it only for limiters of gRPC's routes. A client asks for this form by its Content-Type, so any client can
	// then make a denial look like a success to metrics, a WAF, or the [ratelimit.FailedLogins] of an outer limiter.
	// The request must be a POST, and native gRPC must have come over HTTP/2. A page in a browser sees the
	// grpc-status of gRPC-Web only if CORS exposes it.
	GRPC bool
}

// ServeHTTP answers 429, for the Decision that [ratelimit.FromContext] returns. Outside of a limiter there is none: use
// [ratelimit.Limiter.Admit], which sets the headers, too.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d, ok := ratelimit.FromContext(r.Context()); ok && !d.Allowed {
		h.style().Deny(w, r, d)
	} else {
		h.style().Deny(w, r, nil)
	}
}

// ServeError answers 400 if err is [ratelimit.ErrBadRequest], 403 if it is [ratelimit.ErrNoKey], otherwise 503. It says
// nothing of err.
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

// A Text is the words of an answer. They are plain text: each form of the answer escapes them as it must.
// Control characters, line breaks among them, become spaces.
type Text struct {
	// Language is that of the words, a tag like "de" or "pt-BR" for Content-Language and for the lang of a
	// page. Default: it is not told.
	Language string

	// Title names the kind of answer in a few words, and is the same for all answers of a status.
	Title string

	// Detail says in a sentence what to do, for example when to come back. It may be empty.
	Detail string
}

// A Template writes an HTML page. An *html/template.Template is one, and escapes; a text/template would not.
// It is an interface because whoever imports html/template, even without using it, has a program that is
// larger by more than three megabytes.
type Template interface {
	Execute(w io.Writer, data any) error
}
