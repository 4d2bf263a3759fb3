package ratelimit

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A failureLog logs failures, those of one kind at most once a second with how many were left out: an
// outage must not become a flood of log lines.
type failureLog struct {
	logger *slog.Logger

	mu    sync.Mutex
	kinds map[string]*failures
}

// failures are those of one kind.
type failures struct {
	logged time.Time // the last line
	since  int       // how many were not logged since
}

// maxKinds bounds the kinds that are told apart. The texts of further ones count as one kind.
const maxKinds = 16

func (f *failureLog) log(ctx context.Context, err error, allowed bool) {
	text, now := err.Error(), time.Now()
	f.mu.Lock()
	kind := f.kind(text)
	if now.Sub(kind.logged) < time.Second {
		kind.since++
		f.mu.Unlock()
		return
	}
	since := kind.since
	kind.logged, kind.since = now, 0
	f.mu.Unlock()
	cmp.Or(f.logger, slog.Default()).LogAttrs(ctx, slog.LevelError, "ratelimit: decision failed",
		slog.String("error", text), slog.Bool("let_through", allowed), slog.Int("not_logged_since", since))
}

// kind returns the failures with the same text, but for numbers such as ports.
func (f *failureLog) kind(text string) *failures {
	name := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
	if f.kinds[name] == nil && len(f.kinds) >= maxKinds {
		name = ""
	}
	if f.kinds[name] == nil {
		if f.kinds == nil {
			f.kinds = make(map[string]*failures)
		}
		f.kinds[name] = new(failures)
	}
	return f.kinds[name]
}
