package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/answer"
	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
)

// answer answers r if it is refused, by x's decision or because of err, and returns nil then. Otherwise it returns the
// request to go on with.
func (l *Limiter) answer(w http.ResponseWriter, r *http.Request, x *requestExchange, err error) *http.Request {
	d, came := &x.decision, r
	decided := len(d.Results) > 0
	if decided {
		r = l.setHeaders(w.Header(), &x.exchange, x.with(r))
	}
	switch {
	case d.Allowed:
		return r
	case decided:
		defer returnLearned(came, r)
		setDenied(w.Header(), d)
		l.deny.ServeHTTP(w, r)
	case clientIsGone(w, r):
		answer.NoStore(w.Header())
		w.WriteHeader(clientClosedRequest)
	default:
		answer.NoStore(w.Header())
		l.refuse(w, r, err)
	}
	return nil
}

// deny is the default of Config.Deny.
func deny(w http.ResponseWriter, r *http.Request) {
	if d, ok := FromContext(r.Context()); ok && !d.Allowed {
		answer.Style{}.Deny(w, r, d)
	} else {
		answer.Style{}.Deny(w, r, nil)
	}
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

// A request may be refused because of the errors of its policies' functions. Of several, the one decides that is
// first here:
//   - 400: ErrBadRequest
//   - 403: ErrNoKey and no ErrOutage, unless the policy is Optional
//   - 503: an ErrOutage of a policy that fails closed, or any other error, whatever the policy says of failures
//
// An ErrOutage of another policy leaves that policy out, as does any error of a Shadow. An ErrOutage when the
// request's own context ends is none: a client could bring it about by hanging up, or by sending its last byte late.

// isClients reports whether err is about what the client sent: ErrBadRequest or ErrNoKey.
func isClients(err error) bool { return errors.Is(err, ErrBadRequest) || keyerr.IsNoKey(err) }

// refuses reports whether another error of p's functions, which is not the client's, refuses the request.
func (p *policy) refuses(x *exchange, err error) bool {
	return !p.Shadow && (p.FailClosed || !errors.Is(err, ErrOutage) || x.Err() != nil || x.over(lastMoment) != nil)
}

// turnAway concludes a decision about a request that is refused for what its client sent.
func (l *Limiter) turnAway(x *exchange, err error, start start) error {
	x.decision.At = time.Now()
	l.logRefusal(x, err, false)
	l.report(x, nil, 0, err, start)
	return err
}

const (
	// refusalsEvery is how often a kind of refusal is logged. Clients can cause them at any rate.
	refusalsEvery = time.Minute

	// maxRefusals bounds the kinds of refusals. A policy has about ten that one client can cause.
	maxRefusals = 256
)

// logRefusal logs why a request is refused, or would be if the policy were no Shadow: in most programs the reason is
// a mistake in their wiring.
func (l *Limiter) logRefusal(ctx context.Context, err error, allowed bool) {
	l.refusals.LogKind(ctx, keyerr.Kind(err), err, slog.Bool("let_through", allowed))
}
