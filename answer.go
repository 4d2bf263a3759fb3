package ratelimit

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

// answer answers r if it is refused, by x's decision or because of err, and returns nil then. Otherwise it returns the
// request to go on with.
func (l *Limiter) answer(w http.ResponseWriter, r *http.Request, x *exchange, err error) *http.Request {
	d, came := &x.decision, r
	decided := len(d.Results) > 0
	if decided {
		r = l.setHeaders(w.Header(), x, x.with(r))
	}
	switch {
	case d.Allowed:
		return r
	case decided:
		defer returnLearned(came, r)
		setDenied(w.Header(), d)
		l.deny.ServeHTTP(w, r)
	case clientIsGone(w, r):
		setNoStore(w.Header())
		w.WriteHeader(clientClosedRequest)
	default:
		setNoStore(w.Header())
		l.refuse(w, r, err)
	}
	return nil
}

// clientClosedRequest is nginx's status for a client that went away before it was answered. Nobody reads
// it but logs, which must not show an error of ours.
const clientClosedRequest = 499

// goneWithin is how long net/http takes at most, after it has cancelled a request, to say that its client is gone.
const goneWithin = 10 * time.Millisecond

// clientIsGone reports whether the client of r is known to have gone away. A cancelled context does not say so: the
// server may be shutting down, and the client still be there.
func clientIsGone(w http.ResponseWriter, r *http.Request) (gone bool) {
	if !errors.Is(r.Context().Err(), context.Canceled) {
		return false
	}
	defer func() { _ = recover() }() // some writers of frameworks say that they can, and panic
	for {
		switch writer := w.(type) {
		//lint:ignore SA1019 a context does not tell the client's end from the server's, as this does
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

// returnLearned gives r what its copy has learned: the route that a router inside has matched, for those outside that
// report it, and the form, whose files net/http removes when r has been served.
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
