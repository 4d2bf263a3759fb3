package failure

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A Log logs failures. It logs each kind at most once in a period, with the number of failures that were left out.
type Log struct {
	// Logger receives the lines. Default: slog.Default() at the time of each line.
	Logger *slog.Logger

	// Message is the message of every line.
	Message string

	// Level is the level of every line. Default slog.LevelError.
	Level slog.Leveler

	// Every is the shortest time between two lines of a kind. Default 1 second.
	Every time.Duration

	// MaxKinds bounds the kinds that are distinguished. Further ones count as one kind. Default 16.
	MaxKinds int

	mu     sync.Mutex
	kinds  map[string]*failures
	others failures // of all kinds for which there was no room
}

// failures are the failures of one kind.
type failures struct {
	logged time.Time // the time of the last line
	since  int       // how many were not logged since then
	seen   time.Time // the time of the last failure
}

const (
	defaultMaxKinds = 16

	// forgotten is the time without failures after which another kind can take the place of a kind. Errors that quote
	// a client may take all places, but only frequent ones keep them.
	forgotten = time.Minute

	// maxShown bounds the logged text of an error, in bytes, because it may quote a request.
	maxShown = 1024

	// maxKept bounds the stored name of a kind, in bytes.
	maxKept = 256
)

// Log logs err with attrs, unless its kind was logged recently. The kind is the text of err without numbers and
// quotes. Use LogKind for errors that may quote a client. The text is escaped by logtext.Show.
func (l *Log) Log(ctx context.Context, err error, attrs ...slog.Attr) {
	l.LogKind(ctx, "", err, attrs...)
}

// LogKind is Log for an error of the kind with that name. If name is empty, the kind is that of the text.
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
		l.kinds[strings.Clone(name)] = kind // it may be part of a larger string
	}
	kind.seen = now
	return kind
}

// makeRoom reports whether there is room for one more kind. If necessary, it forgets a kind, and adds the
// failures of that kind that were not logged to others.
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

// kindOf returns text without numbers, such as ports, and without quotes, such as parts of a request.
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
