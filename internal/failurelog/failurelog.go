// Package failurelog keeps an outage from becoming a flood of log lines.
package failurelog

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A Log logs failures, those of one kind at most once in a while with how many were left out.
type Log struct {
	// Logger gets the lines. Default slog.Default(), as it is at each line.
	Logger *slog.Logger

	// Message is that of every line.
	Message string

	// Level is that of every line. Default slog.LevelError.
	Level slog.Leveler

	// Every is how much time is between two lines of a kind. Default a second.
	Every time.Duration

	mu     sync.Mutex
	kinds  map[string]*failures
	others failures // of the kinds for which there was no room
}

// failures are those of one kind.
type failures struct {
	logged time.Time // the last line
	since  int       // how many were not logged since
	seen   time.Time // the last of them
}

const (
	// maxKinds bounds the kinds that are told apart. The texts of further ones count as one kind.
	maxKinds = 16

	// forgotten is after which time without failures a kind gives its place to another. Errors that quote a client
	// may take all places, but only those that come again and again keep them.
	forgotten = time.Minute

	// maxShown bounds what is shown of an error, and kept of a kind, in bytes: an error may quote a request.
	maxShown = 1024
)

// Log logs err, with attrs, unless that would be one of its kind too many. Its text is shown by logtext.Show.
func (l *Log) Log(ctx context.Context, err error, attrs ...slog.Attr) {
	text, now := err.Error(), time.Now()
	l.mu.Lock()
	kind := l.kind(text)
	if now.Sub(kind.logged) < cmp.Or(l.Every, time.Second) {
		kind.since++
		l.mu.Unlock()
		return
	}
	since := kind.since
	kind.logged, kind.since = now, 0
	l.mu.Unlock()
	attrs = append([]slog.Attr{slog.String("error", logtext.Show(text, maxShown))}, attrs...)
	attrs = append(attrs, slog.Int("not_logged_since", since))
	level := slog.LevelError
	if l.Level != nil {
		level = l.Level.Level()
	}
	cmp.Or(l.Logger, slog.Default()).LogAttrs(ctx, level, l.Message, attrs...)
}

// Warn logs a warning that has no kind, every time.
func (l *Log) Warn(message string, attrs ...slog.Attr) {
	cmp.Or(l.Logger, slog.Default()).LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
}

// kind returns the failures with the same text, but for what kindOf leaves out.
func (l *Log) kind(text string) *failures {
	name, now := kindOf(text), time.Now()
	kind := l.kinds[name]
	if kind == nil && !l.makeRoom(now) {
		return &l.others
	}
	if kind == nil {
		kind = new(failures)
		l.kinds[strings.Clone(name)] = kind // it may be a part of something large
	}
	kind.seen = now
	return kind
}

// makeRoom reports whether there is room for one more kind, and has forgotten one for it if need be. What that had
// left to count is counted with the others.
func (l *Log) makeRoom(now time.Time) bool {
	if l.kinds == nil {
		l.kinds = make(map[string]*failures)
	}
	if len(l.kinds) < maxKinds {
		return true
	}
	for name, kind := range l.kinds {
		if now.Sub(kind.seen) >= forgotten {
			l.others.since += kind.since
			delete(l.kinds, name)
			return true
		}
	}
	return false
}

// kindOf returns text without its numbers, such as ports, and without what it quotes, such as a part of a request.
func kindOf(text string) string {
	quoted, escaped := false, false
	return strings.Map(func(r rune) rune {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
			quoted = !quoted
			return r
		}
		if quoted || '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text[:min(len(text), maxShown)])
}
