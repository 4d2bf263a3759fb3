package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/starved"
)

// admit enters e, unless it is closed or ctx has ended.
func (e *engine) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	if !e.enter() {
		return ErrClosed
	}
	return nil
}

// within calls f, a call of the client, and returns when ctx ends, also if the client does not. e was entered.
func within[T any](ctx context.Context, e *engine, f func(context.Context) (T, error)) (T, error) {
	// With a clone for lone callers, it is asked by the client, which completes a handshake that outlasts ctx.
	if _, cloned := e.sender.(*redis.Conn); e.direct(ctx) && (!cloned || ctx.Done() == nil) {
		defer e.flying.Done()
		value, err := f(ctx)
		return value, overrun(ctx, err)
	}

	// The client may return long after ctx has ended, when ctx must not be used any more.
	limited, cancel := context.Background(), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		limited, cancel = context.WithDeadline(limited, deadline)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer e.flying.Done()
		defer cancel()
		// This stays as the result if a hook of the client calls runtime.Goexit.
		r := result{err: errors.New("redisstore: the client ended the goroutine")}
		defer func() { done <- r }()
		r.value, r.err = f(limited)
	}()
	select {
	case r := <-done:
		return r.value, overrun(ctx, r.err)
	case <-ctx.Done():
		var none T
		return none, overrun(ctx, late(ctx.Err()))
	}
}

// overrun returns err, the error of a call under ctx. If the deadline has passed, and this process noticed it so late that
// it lacks processor time, the error says nothing about the server, and overrun returns ErrOverloaded. A lack some time
// ago is no excuse: a server that never answers would not be given up.
func overrun(ctx context.Context, err error) error {
	if deadline, limited := ctx.Deadline(); limited && errors.Is(err, context.DeadlineExceeded) && starved.Since(deadline).Severe(given(ctx)) {
		return overloaded(context.DeadlineExceeded)
	}
	return err
}

// process sends the command that f makes. It sends the command again if no server has carried it out, because a slot moves
// or the server lacks the script. In the latter case, f sends the script, too.
func (e *engine) process(ctx context.Context, f func(eval bool) redis.Cmder) error {
	eval := false
	for tries := 1; ; {
		err := e.client.Process(ctx, f(eval))
		switch {
		case err == nil:
			e.routes.answered()
			return nil
		case redis.HasErrorPrefix(err, "NOSCRIPT") && !eval:
			e.counts.loads.Add(1)
			eval = true
		case e.routes.moving(err) && tries < patience && pauses(ctx):
			tries++
		default:
			if !isRedis(err) {
				e.routes.failed(ctx)
			}
			return failure(ctx, err)
		}
	}
}

// pauses waits before a command is sent again while its slot moves. It reports false if ctx ends.
func pauses(ctx context.Context) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// recovered turns a panic in Config.Clock or a hook of the client into an error.
func (e *engine) recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("redisstore: panic: %v", p)
	}
}

// clockArgument is the clock of a script: "" for that of the server.
func (e *engine) clockArgument() any {
	if e.clock == nil {
		return ""
	}
	return e.clock().UnixMicro()
}
