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

	// MaxKinds bounds the kinds that are told apart. Further ones count as one kind. Default 16.
	MaxKinds int

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
	defaultMaxKinds = 16

	// forgotten is after which time without failures a kind gives its place to another. Errors that quote a client
	// may take all places, but only those that come again and again keep them.
	forgotten = time.Minute

	// maxShown bounds what is shown of an error, in bytes: it may quote a request.
	maxShown = 1024

	// maxKept bounds what is kept of a kind, in bytes.
	maxKept = 256
)

// Log logs err, with attrs, unless that would be one of its kind too many. The kind is the text of err, without its
// numbers and quotes: errors that may quote a client need LogKind. The text is shown by logtext.Show.
func (l *Log) Log(ctx context.Context, err error, attrs ...slog.Attr) {
	l.LogKind(ctx, "", err, attrs...)
}

// LogKind is Log for an error of that kind, or of the kind of its text if that is empty.
func (l *Log) LogKind(ctx context.Context, name string, err error, attrs ...slog.Attr) {
	text, now := err.Error(), time.Now()
	if name == "" {
		name = kindOf(text)
	}
	l.mu.Lock()
	kind := l.kind(name[:min(len(name), maxKept)])
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

// kind returns the failures of the kind with that name.
func (l *Log) kind(name string) *failures {
	now := time.Now()
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
	if len(l.kinds) < cmp.Or(l.MaxKinds, defaultMaxKinds) {
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
