package ratelimit

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
)

// answer answers r if it is refused, by x's decision or because of err, and then returns nil. Otherwise it returns the
// request to pass to the next handler.
func (l *Limiter) answer(w http.ResponseWriter, r *http.Request, x *requestExchange, err error) *http.Request {
	d, came := &x.decision, r
	decided := len(d.Results) > 0
	if decided || d.Allowed {
		r = l.setHeaders(w.Header(), &x.exchange, x.with(r))
	}
	switch {
	case d.Allowed:
		return r
	case decided:
		defer returnLearned(came, r)
		setDenied(w.Header(), d)
		if !refused(w, r, http.StatusTooManyRequests, nil) {
			l.deny.ServeHTTP(w, r)
		}
	case clientIsGone(w, r):
		answer.NoStore(w.Header())
		if !refused(w, r, clientClosedRequest, err) {
			w.WriteHeader(clientClosedRequest)
		}
	default:
		if status := answer.Refusal(w.Header(), err); !refused(w, r, status, err) {
			l.refuse(w, r, err)
		}
	}
	return nil
}

// A Responder is the [http.ResponseWriter] of an adapter for a framework that does not answer by http.Handler. An
// adapter passes it to the handler of [Limiter.Handler] or [Limiter.Limit]. The limiter then asks it how the
// framework answered, and does not wrap it: the next handler gets the Responder itself. Do not pass it on to handlers
// of users, because a limiter in there would ask it, too.
//
// If its handlers can take over the connection, a Responder should have a method WrapConn(wrap func(net.Conn) net.Conn). It
// is called before the next handler for a request that holds a slot of a [Concurrency]. The handler must then get the
// connection that wrap returns, which holds the slot until it is closed.
type Responder interface {
	http.ResponseWriter

	// Refuse answers a request that does not go on, or returns false. Then [Config.Deny] or [Config.Error]
	// writes to the Responder. Status is 429, 400, 403, 503, or 499 for a client that has left. Err is why,
	// nil for a 429, whose decision [FromContext] returns. The headers that the limiter sets are set.
	Refuse(r *http.Request, status int, err error) bool

	// Response returns how the request was answered. It is called once, when the next handler has returned
	// or panicked, if a [Policy] with a Settle was charged. The limiter sets Cost and Panicked.
	Response() Response
}

// refused reports whether w is a Responder that has answered r.
func refused(w http.ResponseWriter, r *http.Request, status int, err error) bool {
	responder, ok := w.(Responder)
	return ok && responder.Refuse(r, status, err)
}

// deny is the default of Config.Deny.
func deny(w http.ResponseWriter, r *http.Request) {
	if d, ok := FromContext(r.Context()); ok && !d.Allowed {
		answer.Style{}.Deny(w, r, d)
	} else {
		answer.Style{}.Deny(w, r, nil)
	}
}

// clientClosedRequest is nginx's status for a client that left before it was answered. Only logs show it, and they must
// not show an error of the server.
const clientClosedRequest = 499

// goneWithin is the time in which net/http reports, after it has cancelled a request, that its client is gone.
const goneWithin = 10 * time.Millisecond

// clientIsGone reports whether the client of r has certainly left. A cancelled context is no proof: the server may be
// shutting down while the client waits.
func clientIsGone(w http.ResponseWriter, r *http.Request) (gone bool) {
	if !errors.Is(r.Context().Err(), context.Canceled) {
		return false
	}
	defer func() { _ = recover() }() // some writers of frameworks implement CloseNotify with a panic
	for {
		switch writer := w.(type) {
		//lint:ignore SA1019 a context ends with the client or with the server, and only this tells them apart
		case http.CloseNotifier:
			timer := time.NewTimer(goneWithin)
			defer timer.Stop()
			select {
			case <-writer.CloseNotify():
				return true
			case <-timer.C:
				return false
			}
		case interface{ Unwrap() http.ResponseWriter }:
			w = writer.Unwrap()
		default:
			return false
		}
	}
}

// returnLearned copies to r what handlers have added to its copy. Middleware outside reports the route that a router
// inside has matched, and net/http removes the files of the form when r has been served.
func returnLearned(r, copied *http.Request) {
	if copied.Pattern != r.Pattern {
		r.Pattern = copied.Pattern
		for _, rest, more := strings.Cut(r.Pattern, "{"); more; _, rest, more = strings.Cut(rest, "{") {
			name, _, _ := strings.Cut(rest, "}")
			name = strings.TrimSuffix(name, "...")
			if value := copied.PathValue(name); value != "" {
				r.SetPathValue(name, value)
			}
		}
	}
	if copied.Form != nil || copied.MultipartForm != nil {
		r.Form, r.PostForm, r.MultipartForm = copied.Form, copied.PostForm, copied.MultipartForm
	}
}
