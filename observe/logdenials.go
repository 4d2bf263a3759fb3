package observe

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyerr"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// LogConfig configures LogDenials. The zero value is ready to use, and shows keys as they are.
type LogConfig struct {
	// Logger gets the lines. Default slog.Default(), as it is at each line.
	Logger *slog.Logger

	// KeySecret, if not nil, is a secret of at least 16 bytes, for logs that must not hold addresses or names.
	// Keys then appear as "hmac:" and the first 16 hexadecimal digits of their HMAC-SHA-256 under it, alike in
	// all programs that have it: of "ip:192.0.2.1" what this prints.
	//
	//	printf %s ip:192.0.2.1 | openssl dgst -sha256 -hmac "$SECRET" | grep -o '[0-9a-f]*$' | head -c 16
	//
	// Without a secret, whoever has the log could find an address by trying them all. It does not apply to
	// the errors of KeyFuncs that found no key, which those must word accordingly.
	KeySecret []byte
}

const minKeySecret = 16

// LogDenials returns an observer for [ratelimit.Config.Observe] that logs who is denied, at most one line a minute for
// each policy and key. Allowed requests are not logged, and neither are failures, which [ratelimit.Config].Logger is told
// of. The lines are:
//
//	INFO  ratelimit: denied                        policy key route limit cost shadow degraded denials_not_logged
//	INFO  ratelimit: would have denied             the same, for a Shadow
//	INFO  ratelimit: no key                        error route denials_not_logged
//	WARN  ratelimit: a stand-in for the store decides    decisions_not_logged
//	INFO  ratelimit: the store decides again             decisions_not_logged
//
// Each has all the attributes that are listed for it, in no group. Neither messages nor names change within a
// major version. What they say:
//   - policy, key, limit, cost, shadow and degraded are those of the Result, and route is that of the Event.
//   - key and error are cut after 256 bytes. If they hold a backslash or what cannot be printed, they are
//     escaped as in a Go string, whatever the handler does.
//   - denials_not_logged counts the denials that were left out since the line before.
//   - The stand-in's line comes with the first decision by one (see [ratelimit.Event.Degraded]), and the store's with the
//     first of the store after a minute without any by a stand-in. Together they are at most one a minute.
//   - decisions_not_logged counts the decisions by stand-ins that had no line.
//
// Clients cannot flood the log. Up to 1,024 pairs of policy and key a minute have lines of their own. The
// others share one line a minute for each policy, and beyond 64 policies one for all. Its message ends in
// " other keys", its key is empty, and the rest is true of the denial at hand. What pairs had left to count
// that were forgotten for others is counted there. Requests without a key share one line for all policies.
//
// The observer is safe for concurrent use, by several Limiters too, needs no closing, and holds up to 200 KB.
// To have metrics as well, [Join] it with another observer. LogDenials panics if KeySecret is too short.
func LogDenials(cfg LogConfig) func(context.Context, *ratelimit.Event) {
	if cfg.KeySecret != nil && len(cfg.KeySecret) < minKeySecret {
		panic(fmt.Sprintf("observe: LogDenials: LogConfig.KeySecret of %d bytes: must be at least %d, random ones, or nil to show keys as they are", len(cfg.KeySecret), minKeySecret))
	}
	l := &denialLog{logger: cfg.Logger, secret: slices.Clone(cfg.KeySecret), seed: maphash.MakeSeed()}
	return l.observe
}

// A denialLog is what LogDenials returns.
type denialLog struct {
	logger  *slog.Logger // nil: slog.Default()
	secret  []byte       // nil: keys are shown as they are
	seed    maphash.Seed
	recent  recentLines
	standIn standInLines
}

func (l *denialLog) observe(ctx context.Context, e *ratelimit.Event) {
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
	if keyerr.IsNoKey(e.Err) {
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
	key := ""
	if as.key != 0 {
		key = l.showKey(r.Key)
	} else {
		message += " other keys"
	}
	l.log(ctx, slog.LevelInfo, message,
		slog.String("policy", as.policy),
		slog.String("key", key),
		slog.String("route", e.Route),
		slog.String("limit", r.Limit.String()),
		slog.Int64("cost", r.Cost),
		slog.Bool("shadow", r.Shadow),
		slog.Bool("degraded", r.Degraded),
		slog.Int64("denials_not_logged", notLogged),
	)
}

// withoutKey logs a refusal by ErrNoKey, which is the client's fault, or the wiring's. [ratelimit.Config].Logger gets
// it as well.
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

// showKey returns how a key appears.
func (l *denialLog) showKey(key string) string {
	if l.secret == nil {
		return logtext.Show(key, maxShown)
	}
	mac := hmac.New(sha256.New, l.secret)
	mac.Write([]byte(key))
	return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// maxShown bounds what a line shows of texts that clients choose, in bytes.
const maxShown = 256
