// Package observe provides observers for [ratelimit.Config.Observe]. [LogDenials] logs denied requests:
//
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Policies: policies,
//		Observe:  observe.LogDenials(observe.LogConfig{}),
//	})
//
// [Counts] counts requests, for metrics and for a page: contrib/promratelimit and contrib/otelratelimit export it. [Top] lists
// the keys that make the most requests, and those that are blocked. [Names] finds the names of keys for people. [Threshold]
// warns of keys that have used a share of their limit. [Join] makes one observer of several. Failures of the store are logged
// by [ratelimit.Config.Logger], not by this package.
//
// # Log lines
//
// LogDenials writes these messages, each with all the attributes listed, in no group:
//
//	INFO  ratelimit: denied                        policy key route limit cost shadow degraded denials_not_logged
//	INFO  ratelimit: would have denied             the same, for a Shadow
//	INFO  ratelimit: no key                        error route denials_not_logged
//	WARN  ratelimit: a stand-in for the store decides    decisions_not_logged
//	INFO  ratelimit: the store decides again             decisions_not_logged
//
// Messages and names do not change within a major version. The attributes:
//   - policy, key, limit, cost, shadow and degraded are those of the [ratelimit.Result]. route is that of the
//     [ratelimit.Event].
//   - key and error are cut after 256 bytes. If they have a backslash or unprintable characters, they are escaped
//     as in a Go string.
//   - name is there with [LogConfig.Names] only. The first line of a key often has none, because no request waits for it.
//   - denials_not_logged counts the denials without a line since the previous line.
//   - decisions_not_logged counts the decisions by stand-ins without a line.
//
// The settlement of a request ([ratelimit.Event] with an Op of "settle") has no line. Neither has a slot that has expired:
// the Store logs it.
//
// The line "a stand-in for the store decides" comes with the first decision by a stand-in (see
// [ratelimit.Event.Degraded]). The line "the store decides again" comes with the first decision of the store after
// a minute without any by a stand-in. Together they are at most one line a minute.
//
// # Floods
//
// A policy and key have at most one line a minute. Up to 1,024 pairs of policy and key a minute have their own
// lines. The others share one line a minute for each policy. Policies beyond the first 64 share one line together.
// The message of a shared line ends in " other keys", its key is empty, and its other attributes are those of the
// current denial. It also counts the denials of pairs that were forgotten. Requests without a key share one line
// for all policies.
//
// # Names of keys
//
// A key that is the hash of an API key tells an operator nothing. [Names] finds its name in the program's database,
// for the log and for the page of package admin:
//
//	names, err := observe.NewNames(func(ctx context.Context, policy, key string) (name string, err error) {
//		hash, ok := strings.CutPrefix(key, "header:x-api-key:")
//		if !ok {
//			return "", nil // an address needs no name
//		}
//		err = db.QueryRowContext(ctx, "SELECT customer FROM api_keys WHERE hash = $1", hash).Scan(&name)
//		if errors.Is(err, sql.ErrNoRows) {
//			return "", nil
//		}
//		return name, err
//	}, observe.NamesConfig{})
//
// # Logs without personal data
//
// [LogConfig.KeySecret] replaces each key with a part of its HMAC, which is the same in all programs with the
// secret. To find the lines of an address, use [KeyName], or a shell:
//
//	printf %s ip:192.0.2.1 | openssl dgst -sha256 -hmac "$SECRET" | grep -o '[0-9a-f]*$' | head -c 16
//
// A hash without a secret is not enough: a reader of the log could hash all addresses and compare.
package observe

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
)

// Join returns an observer that calls all observers, in their order. It panics if observers is empty or has a nil.
func Join(observers ...func(context.Context, *ratelimit.Event)) func(context.Context, *ratelimit.Event) {
	if len(observers) == 0 {
		panic("observe: Join: observers: must have at least one")
	}
	for i, o := range observers {
		if o == nil {
			panic(fmt.Sprintf("observe: Join: observers: number %d must not be nil", i+1))
		}
	}
	observers = slices.Clone(observers)
	return func(ctx context.Context, e *ratelimit.Event) {
		for _, o := range observers {
			o(ctx, e)
		}
	}
}
