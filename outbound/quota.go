package outbound

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A Quota is a [Transport] without HTTP, for clients of other protocols. Call [Quota.Wait] before each call, and
// [Quota.Report] with what its answer says.
type Quota struct {
	limiter *ratelimit.Limiter
	policy  ratelimit.Policy
	maxStop time.Duration

	// Each key has two more buckets. A call takes a token of stop, and one comes each microsecond: a debt there stops
	// all calls until it has refilled. The tokens of corrected are the milliseconds since the last correction, see
	// correct.
	stop, corrected ratelimit.Policy

	mu   sync.Mutex
	keys map[string]*view
}

const (
	longestSuffix = "/corrected"
	stopBurst     = time.Second // how long stop takes to fill
)

// NewQuota returns a Quota, or an error that names every wrong field. It does not use Base and Learn of cfg.
func NewQuota(cfg Config) (*Quota, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("outbound: Config."+format, args...))
	}
	p := cfg.Policy
	if p.Key == nil {
		p.Key = Host()
	}
	if cfg.Limiter == nil {
		fault("Limiter: must be set")
	}
	if _, err := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{p}}); err != nil {
		fault("Policy: %w", err)
	} else if most := 63 - len(longestSuffix); len(p.Name) > most {
		fault("Policy: Name %q: must be at most %d bytes", p.Name, most)
	}
	if !isRate(p.Limit) {
		fault("Policy: Limit %v: must be a rate, such as PerHour(5000): calls wait for its tokens, and those of a calendar quota come all at once; for a concurrency limit use Limiter.Acquire", p.Limit)
	}
	if p.Shadow {
		fault("Policy: Shadow: must not be set: a shadow keeps nothing within a quota")
	}
	if p.Settle != nil {
		fault("Policy: Settle: must not be set: responses of the API correct the bucket")
	}
	if cfg.MaxStop < 0 {
		fault("MaxStop %v: must be positive; 0 means the default of 1h", cfg.MaxStop)
	}
	if cfg.MaxStop == 0 {
		cfg.MaxStop = time.Hour
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	more := func(suffix string, limit ratelimit.Limit) ratelimit.Policy {
		return ratelimit.Policy{Name: p.Name + suffix, Limit: limit, FailClosed: p.FailClosed, Hidden: true}
	}
	return &Quota{
		limiter:   cfg.Limiter,
		policy:    p,
		maxStop:   cfg.MaxStop,
		stop:      more("/stop", ratelimit.PerSecond(time.Second.Microseconds()).WithBurst(stopBurst.Microseconds())),
		corrected: more(longestSuffix, ratelimit.PerSecond(1000).WithBurst(maxAge.Milliseconds())),
		keys:      make(map[string]*view),
	}, nil
}

// isRate reports whether limit is no calendar quota and no concurrency limit.
func isRate(limit ratelimit.Limit) bool { return limit.Period() == 0 && !limit.IsConcurrency() }

// maxKeys bounds what a process remembers. The buckets in the Store are not affected.
const maxKeys = 1024

// view returns what this process knows of key. The caller holds q.mu.
func (q *Quota) view(key string) *view {
	v := q.keys[key]
	if v == nil {
		for some := range q.keys {
			if len(q.keys) < maxKeys {
				break
			}
			delete(q.keys, some)
		}
		v = &view{line: newLine()}
		q.keys[key] = v
	}
	return v
}
