// Package answer writes the responses to refused requests: problem+json, text, an HTML page or an htmx fragment, as
// the client asks, or a gRPC status.
package answer

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/rateheader"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A Style is the look of responses. Package denial exports and documents its fields.
type Style struct {
	Text func(r *http.Request, status int, after time.Duration) Text
	Page Template
	GRPC bool
}

// A Decision is the content of a 429, from the limiter that denied.
type Decision interface {
	RetryAfter() time.Duration
	Denied() []string
	PeriodEnd() time.Time // that the client has to wait for; zero without a quota
	AtOnce() bool         // the client has to wait for a slot
}

// Deny answers 429 for d. d is nil if no limiter denied.
func (s Style) Deny(w http.ResponseWriter, r *http.Request, d Decision) {
	p := problem{kind: quotaExceeded, status: http.StatusTooManyRequests}
	if d == nil {
		NoStore(w.Header()) // a limiter that denied has called it already
	} else {
		p.violated = d.Denied()
		p.until, p.atOnce = d.PeriodEnd(), d.AtOnce()
		if p.after = d.RetryAfter(); p.after != store.Never {
			p.after = time.Duration(rateheader.Seconds(p.after)) * time.Second
		}
	}
	s.answer(w, r, &p)
}

// unavailableFor is the Retry-After of a 503: about as long as a failover takes.
const unavailableFor = 5 * time.Second

// Refusal returns the status for err, which is 400, 403 or 503, and sets the headers that go with it.
func Refusal(h http.Header, err error) (status int) {
	NoStore(h)
	switch {
	case errors.Is(err, failure.ErrBadRequest):
		return http.StatusBadRequest
	case failure.IsNoKey(err):
		return http.StatusForbidden
	default:
		h.Set("Retry-After", strconv.Itoa(int(unavailableFor.Seconds())))
		return http.StatusServiceUnavailable
	}
}

// Refuse answers 400, 403 or 503 for err. The response does not contain err.
func (s Style) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problem{kind: "about:blank", status: Refusal(w.Header(), err)}
	if p.status == http.StatusServiceUnavailable {
		p.kind, p.after = temporaryReducedCapacity, unavailableFor
	}
	s.answer(w, r, &p)
}

func (s Style) answer(w http.ResponseWriter, r *http.Request, p *problem) {
	text := s.text(r, p)
	h := w.Header()
	for _, name := range describing {
		delete(h, name)
	}
	if s.Text != nil && text.Language != "" {
		h.Set("Content-Language", text.Language)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	if s.GRPC {
		if t := grpcContentType(r); t != "" {
			p.writeGRPC(w, t, text)
			return
		}
	}

	body, contentType := s.body(r, p, text)
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	// There is no Vary header: it is for caches, and none may keep this response. It would also be the ninth header
	// of most responses. Then their map has to grow, and a denial would cost a quarter more.
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have left, and no other code can handle the error
	}
}

// describing are headers that another handler may have set for a response that is not sent now. Content-Encoding is
// not one of them: a middleware that compresses has set it for any response from inside.
var describing = [...]string{
	"Content-Disposition", "Content-Language", "Content-Location", "Content-Range", "Etag", "Last-Modified",
}

func (s Style) text(r *http.Request, p *problem) Text {
	if s.Text != nil {
		if t := s.Text(r, p.status, p.after).clean(); t.Title != "" {
			return t
		}
	}
	return english(p)
}

// body returns the response in the form that r asks for, and its Content-Type. For an API, JSON is preferred. For a
// part of a page it is HTML, because JSON would be shown to the user.
func (s Style) body(r *http.Request, p *problem, t Text) ([]byte, string) {
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
		return p.html(t, s.Page), html
	}
	return p.json(t), "application/problem+json"
}
