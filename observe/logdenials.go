package observe

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// LogConfig configures [LogDenials]. The zero value is ready to use, and logs keys unchanged.
type LogConfig struct {
	// Logger receives the lines. Default: slog.Default(), looked up for each line.
	Logger *slog.Logger

	// KeySecret, if not nil, is a secret of at least 16 bytes. Keys are then logged as "hmac:" and the first 16
	// hexadecimal digits of their HMAC-SHA-256. Use it for logs that must not hold addresses or names. A KeyFunc
	// must not put them into its errors either. The package comment shows how to find a key.
	KeySecret []byte

	// Names adds the attribute "name" to the lines of denied requests: what Names.Name returns for their key, also with
	// a KeySecret. Default: no such attribute.
	Names *Names
}

// LogDenials returns an observer for [ratelimit.Config.Observe] that logs denied requests, at most one line a
// minute for each policy and key. Clients cannot flood the log. Allowed requests are not logged. The package
// comment lists the lines.
//
// The observer is safe for concurrent use, also by several Limiters. It needs no closing and uses up to 200 KB.
// LogDenials panics if KeySecret is too short.
func LogDenials(cfg LogConfig) func(context.Context, *ratelimit.Event) {
	if err := keyname.CheckSecret(cfg.KeySecret, "LogConfig.KeySecret", "to show keys unchanged"); err != nil {
		panic("observe: LogDenials: " + err.Error())
	}
	l := &denialLog{logger: cfg.Logger, names: cfg.Names, secret: slices.Clone(cfg.KeySecret), seed: maphash.MakeSeed()}
	return l.observe
}

// A denialLog is what LogDenials returns.
type denialLog struct {
	logger  *slog.Logger // nil: slog.Default()
	secret  []byte       // nil: keys are shown as they are
	names   *Names       // nil: lines have none
	seed    maphash.Seed
	recent  recentLines
	standIn standInLines
}

func (l *denialLog) observe(ctx context.Context, e *ratelimit.Event) {
	switch e.Op {
	case "settle", "expired": // no decision, and none of a stand-in either
		return
	}
	degraded := false
	for i := range e.Results {
		r := &e.Results[i]
		if !r.Allowed {
			l.denied(ctx, e, r)
		}
		degraded = degraded || r.Degraded
	}
	if len(e.Results) > 0 && l.standIn.concerns(degraded) {
		l.decided(ctx, degraded)
	}
	if failure.IsNoKey(e.Err) {
		l.withoutKey(ctx, e)
	}
}

func (l *denialLog) denied(ctx context.Context, e *ratelimit.Event, r *ratelimit.Result) {
	of := subject{kind: denial, policy: r.Policy, key: maphash.String(l.seed, r.Key) | 1}
	message := "ratelimit: denied"
	if r.Shadow {
		of.kind, message = shadowDenial, "ratelimit: would have denied"
	}
	as, notLogged, due := l.recent.due(time.Now(), of)
	if !due {
		return
	}
	key, name := "", ""
	if as.key != 0 {
		key, name = l.showKey(r.Key), l.names.Name(r.Policy, r.Key)
	} else {
		message += " other keys"
	}
	attrs := []slog.Attr{
		slog.String("policy", as.policy),
		slog.String("key", key),
		slog.String("route", e.Route),
		slog.String("limit", r.Limit.String()),
		slog.Int64("cost", r.Cost),
		slog.Bool("shadow", r.Shadow),
		slog.Bool("degraded", r.Degraded),
		slog.Int64("denials_not_logged", notLogged),
	}
	if l.names != nil {
		attrs = append(attrs, slog.String("name", name))
	}
	l.log(ctx, slog.LevelInfo, message, attrs...)
}

// withoutKey logs a refusal by ErrNoKey. The client caused it, or the wiring. [ratelimit.Config.Logger] logs it,
// too.
func (l *denialLog) withoutKey(ctx context.Context, e *ratelimit.Event) {
	if _, notLogged, due := l.recent.due(time.Now(), subject{kind: noKey}); due {
		l.log(ctx, slog.LevelInfo, "ratelimit: no key",
			slog.String("error", logtext.Show(e.Err.Error(), maxShown)),
			slog.String("route", e.Route),
			slog.Int64("denials_not_logged", notLogged),
		)
	}
}

func (l *denialLog) decided(ctx context.Context, degraded bool) {
	notLogged, due := l.standIn.due(time.Now(), degraded)
	if !due {
		return
	}
	level, message := slog.LevelInfo, "ratelimit: the store decides again"
	if degraded {
		level, message = slog.LevelWarn, "ratelimit: a stand-in for the store decides"
	}
	l.log(ctx, level, message, slog.Int64("decisions_not_logged", notLogged))
}

func (l *denialLog) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	cmp.Or(l.logger, slog.Default()).LogAttrs(ctx, level, message, attrs...)
}

// showKey returns the text of a key in the log.
func (l *denialLog) showKey(key string) string {
	if l.secret == nil {
		return logtext.Show(key, maxShown)
	}
	return keyname.Secret(l.secret, key)
}

// maxShown bounds the logged part of texts that clients choose, in bytes.
const maxShown = 256
