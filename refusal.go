package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// A request may be refused because of the errors of its policies' functions. Of several, the one decides that is
// first here:
//   - 400: ErrBadRequest
//   - 403: ErrNoKey and no ErrOutage, unless the policy is Optional
//   - 503: an ErrOutage of a policy that fails closed, or any other error, whatever the policy says of failures
//
// An ErrOutage of another policy leaves that policy out, as does any error of a Shadow. An ErrOutage when the
// request's own context ends is none: a client could bring it about by hanging up, or by sending its last byte late.

// isClients reports whether err is about what the client sent: ErrBadRequest or ErrNoKey.
func isClients(err error) bool { return errors.Is(err, ErrBadRequest) || isNoKey(err) }

// refuses reports whether another error of p's functions, which is not the client's, refuses the request.
func (p *policy) refuses(x *exchange, err error) bool {
	return !p.Shadow && (p.FailClosed || !errors.Is(err, ErrOutage) || x.Err() != nil || x.over(lastMoment) != nil)
}

// turnAway concludes a decision about a request that is refused for what its client sent.
func (l *Limiter) turnAway(x *exchange, err error, start time.Time) error {
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
	l.refusals.LogKind(ctx, kindOf(err), err, slog.Bool("let_through", allowed))
}
