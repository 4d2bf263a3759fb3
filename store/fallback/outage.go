package fallback

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An outage is a time in which the primary is not called.
type outage struct {
	reason error
	since  time.Time
	probe  []store.Charge
	told   time.Time // when the last line of the log was written
}

// refuse returns the error of a call that only the primary may answer.
func (o *outage) refuse() error { return fmt.Errorf("%w: %w", store.ErrAway, o.reason) }

// giveUp begins an outage, after a call of charges that failed for reason.
func (f *Store) giveUp(reason error, charges []store.Charge) {
	now := time.Now()
	o := &outage{reason: reason, since: now, probe: probe(charges), told: now}
	f.counts.begin(o)
	f.away.Store(o)
	f.prober.begin()
	f.report(context.Background())
}

// report logs whether the primary is used, and calls onChange, unless that was reported before. Calls of onChange never
// overlap. report runs after the change: a logger that hangs must not delay the probes or the end of an outage.
func (f *Store) report(ctx context.Context) {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	defer f.recovered(ctx)
	before, o := f.reported, f.away.Load()
	if before == o {
		return
	}
	f.reported = o
	var reason error
	if o != nil {
		reason = o.reason
		f.log().Warn("fallback: the primary is unavailable, and the secondary answers", "error", reason)
	} else {
		f.log().Info("fallback: the primary is back", "after", time.Since(before.since))
	}
	if f.onChange != nil {
		f.onChange(o != nil, reason)
	}
}

// probePolicy is the policy of the buckets that probes charge.
const probePolicy = "fallback-probe"

// probeLimit is so high that the probes of many replicas do not use it up. Its buckets are soon forgotten.
var probeLimit, _ = store.NewLimit(10_000, time.Second, 10_000)

// probe returns charges that fail if charges would fail now, and else succeed. They write to the same servers, but to
// other buckets, because the bucket of a charge may be corrupt.
func probe(charges []store.Charge) (probe []store.Charge) {
	for i := range charges {
		key := charges[i].Key
		if !slices.ContainsFunc(probe, func(c store.Charge) bool { return c.Key == key }) {
			probe = append(probe, store.Charge{Policy: probePolicy, Key: strings.Clone(key), Limit: probeLimit, Cost: 1})
		}
	}
	return probe
}

// probe checks whether the primary works again. If it does, probe ends the outage and reports true.
func (f *Store) probe(ctx context.Context) (back bool) {
	defer f.recovered(ctx)
	o := f.away.Load()
	if o == nil {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, f.slow)
	defer cancel()
	f.counts.probes.Add(1)
	if _, err := f.primary.Take(limited, o.probe, make([]store.State, len(o.probe))); err != nil {
		if now := time.Now(); now.Sub(o.told) >= time.Minute {
			o.told = now
			go func() { // a logger that hangs must not delay the probes
				defer f.recovered(ctx)
				f.log().Warn("fallback: the primary is still unavailable, and the secondary answers", "for", now.Sub(o.since), "error", err, "Slow", f.slow)
			}()
		}
		return false
	}
	f.counts.end()
	f.away.Store(nil)
	f.tally.reopen(f.now()) // last, because from now on failures count, and may begin the next outage
	f.report(ctx)
	return true
}

func (f *Store) log() *slog.Logger { return cmp.Or(f.logger, slog.Default()) }

// recovered logs a panic of a Store or of onChange in a goroutine of this package, so that it does not end the process.
func (f *Store) recovered(ctx context.Context) {
	if p := recover(); p != nil {
		f.failures.Log(ctx, fmt.Errorf("panic: %v", p))
	}
}
