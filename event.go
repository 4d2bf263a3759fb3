package ratelimit

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// An Event is one decision, as Config.Observe sees it.
type Event struct {
	// Decision is what was decided, shadow policies included, or what follows from Err.
	Decision *Decision

	// Err is why nothing could be decided: a failure of the store, an error of a KeyFunc, ErrNoKey, or,
	// if the client went away meanwhile, context.Canceled.
	Err error

	// Took is how long the decision took.
	Took time.Duration
}

// A failureLog logs failures, a repeated one at most once a second with how many were left out: an outage
// must not become a flood of log lines.
type failureLog struct {
	logger *slog.Logger

	mu     sync.Mutex
	last   string
	at     time.Time
	silent int
}

func (f *failureLog) log(ctx context.Context, err error, allowed bool) {
	text, now := err.Error(), time.Now()
	f.mu.Lock()
	if text == f.last && now.Sub(f.at) < time.Second {
		f.silent++
		f.mu.Unlock()
		return
	}
	silent := f.silent
	f.last, f.at, f.silent = text, now, 0
	f.mu.Unlock()
	cmp.Or(f.logger, slog.Default()).LogAttrs(ctx, slog.LevelError, "ratelimit: decision failed",
		slog.String("error", text), slog.Bool("let_through", allowed), slog.Int("repeated", silent))
}
