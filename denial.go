package ratelimit

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// A Denial answers requests that do not go on, in the form that their clients want, with words and a page of
// your own if you like. The zero value is what Config has by default. As Config.Deny it answers 429, and its
// ServeError, as Config.Error, 400, 403 or 503:
//
//	denial := ratelimit.Denial{Text: words}
//	limiter, err := ratelimit.New(ratelimit.Config{Deny: denial, Error: denial.ServeError, …})
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
type Denial struct {
	// Text, if set, chooses the words. status is 429, 400, 403 or 503. after is when to come back: the Retry-After
	// in whole seconds, Never if the request can never succeed, or 0 if nobody knows. For a 429, FromContext
	// tells the rest. A Text without a Title stands for the default, which is English. If Text is set,
	// Content-Language tells which language was chosen.
	Text func(r *http.Request, status int, after time.Duration) Text

	// Page, if set, writes the page: an *html/template.Template, which escapes. It is executed with the
	// fields of Text, that is {{.Title}}, {{.Detail}} and {{.Language}}, as well as {{.Status}}, and
	// {{.RetryAfter}} in seconds, 0 for never. If it fails, the default page is sent: have a test show yours.
	Page Template

	// GRPC answers clients of gRPC and gRPC-Web with status 200, and RESOURCE_EXHAUSTED (429), INVALID_ARGUMENT
	// (400), PERMISSION_DENIED (403) or UNAVAILABLE (503) in grpc-status, which they understand. Default: they are answered as others are.
	//
	// Set it only for limiters of gRPC's routes. A client asks for this form by its Content-Type, so any client can
	// then make a denial look like a success to metrics, a WAF, or the FailedLogins of an outer limiter.
	// The request must be a POST, and native gRPC must have come over HTTP/2. A page in a browser sees the
	// grpc-status of gRPC-Web only if CORS exposes it.
	GRPC bool
}

// ServeHTTP answers 429, for the Decision that FromContext returns. Outside of a limiter there is none: use
// [Limiter.Admit], which sets the headers, too.
func (d Denial) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := problem{kind: quotaExceeded, status: http.StatusTooManyRequests}
	if decision, ok := FromContext(r.Context()); ok {
		p.decision = decision
		if p.after = decision.RetryAfter(); p.after != Never && !decision.Allowed {
			p.after = time.Duration(seconds(p.after)) * time.Second
		}
	}
	if p.decision == nil || p.decision.Allowed { // a limiter that denied has done so
		setNoStore(w.Header())
	}
	d.answer(w, r, &p)
}

// unavailableFor is the Retry-After of a 503: about as long as a failover takes.
const unavailableFor = 5 * time.Second

// ServeError answers 400 if err is ErrBadRequest, 403 if it is ErrNoKey, otherwise 503. It says nothing of err.
func (d Denial) ServeError(w http.ResponseWriter, r *http.Request, err error) {
	h := w.Header()
	setNoStore(h)
	p := problem{kind: "about:blank"}
	switch {
	case errors.Is(err, ErrBadRequest):
		p.status = http.StatusBadRequest
	case isNoKey(err):
		p.status = http.StatusForbidden
	default:
		p = problem{kind: temporaryReducedCapacity, status: http.StatusServiceUnavailable, after: unavailableFor}
		h.Set("Retry-After", strconv.Itoa(int(unavailableFor.Seconds())))
	}
	d.answer(w, r, &p)
}

func (d Denial) answer(w http.ResponseWriter, r *http.Request, p *problem) {
	text := d.text(r, p)
	h := w.Header()
	for _, name := range describing {
		delete(h, name)
	}
	if d.Text != nil && text.Language != "" {
		h.Set("Content-Language", text.Language)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	if d.GRPC {
		if t := grpcContentType(r); t != "" {
			p.writeGRPC(w, t, text)
			return
		}
	}

	body, contentType := d.body(r, p, text)
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// There is no Vary: it speaks to caches, none of which may keep this. It would also be the ninth header of
	// most, for which their map has to grow, and a flood of denials would cost a quarter more.
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; nobody else is there to tell
	}
}

// describing are headers by which another handler may have begun to describe a response that is not sent now.
// Content-Encoding is not one of them: a middleware that compresses has set it for whatever is written inside.
var describing = [...]string{
	"Content-Disposition", "Content-Language", "Content-Location", "Content-Range", "Etag", "Last-Modified",
}

func (d Denial) text(r *http.Request, p *problem) Text {
	if d.Text != nil {
		if t := d.Text(r, p.status, p.after).clean(); t.Title != "" {
			return t
		}
	}
	return english(p.status, p.after)
}

// body returns the answer in the form that r asks for, and its Content-Type. In an API's answer JSON is what
// fits best, and HTML in what is to be swapped into a page, where JSON would be shown as it is.
func (d Denial) body(r *http.Request, p *problem, t Text) ([]byte, string) {
	const html = "text/html; charset=utf-8"
	swapped := r.Header.Get("HX-Request") == "true"
	order := [forms]form{asProblem, asText, asPage}
	if swapped {
		order = [forms]form{asPage, asText, asProblem}
	}
	switch preferredForm(r.Header["Accept"], order) {
	case asText:
		return t.lines(), "text/plain; charset=utf-8"
	case asPage:
		if swapped {
			return p.fragment(t), html
		}
		return p.html(t, d.Page), html
	}
	return p.json(t), "application/problem+json"
}
