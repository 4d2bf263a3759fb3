package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An outage is a time in which the primary is not called.
type outage struct {
	reason error
	since  time.Time
	probe  []store.Charge
	told   time.Time // the last line of the log
}

// brief reports whether o is for single calls that failed while the primary is not given up.
func (o *outage) brief() bool { return o.since.IsZero() }

// giveUp begins an outage, after a call of charges that was sent at that time and failed for reason.
func (f *Store) giveUp(reason error, charges []store.Charge, sent int64) {
	func() {
		defer f.recovered(context.Background()) // or there would be no outage
		f.replicas.refresh(f.known.now)
	}()
	now := time.Now()
	o := &outage{reason: reason, since: now, probe: probe(charges), told: now}
	f.spent.begin(o)
	f.counts.begin(o)
	f.away.Store(o)
	defer f.prober.begin() // also if onChange panics, or the outage would not end
	f.log().Warn("fallback: the primary is unavailable, and the secondary answers", "error", reason)
	f.unsteadiness.givenUp(f.log(), reason, time.Duration(f.known.now()-sent)*time.Microsecond, f.slow)
	if f.onChange != nil {
		f.onChange(true, reason)
	}
}

// probePolicy is the policy of the buckets that probes charge.
const probePolicy = "fallback-probe"

// probeLimit is a limit that the probes of many replicas do not use up, and whose buckets are soon forgotten.
var probeLimit, _ = store.NewLimit(10_000, time.Second, 10_000)

// probe returns charges that fail or succeed like charges would now. They write to the same servers, but to other
// buckets, because the bucket of a charge may be corrupt.
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
	if err := f.askProbe(ctx, o.probe); err != nil {
		o.stillAway(f.log(), err, f.slow)
		return false
	}
	until := time.Now().Add(returning)
	if !f.settle(ctx, settlers, func() bool { return time.Now().Before(until) }) {
		return false
	}
	f.back(ctx, o)
	f.settle(ctx, settlers, f.isBack)
	if !f.spent.empty() {
		f.settleLate()
	}
	return true
}

// askProbe returns an error if the primary fails the probe or is slow.
func (f *Store) askProbe(ctx context.Context, probe []store.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, f.slow)
	defer cancel()
	f.counts.probes.Add(1)
	_, err := f.primary.Take(ctx, probe, make([]store.State, len(probe)))
	return err
}

func (f *Store) isBack() bool { return f.away.Load() == nil }

// back ends an outage.
func (f *Store) back(ctx context.Context, o *outage) {
	// Last, so that the next outage is reported after the end of this one.
	defer func() {
		f.tally.reopen(f.known.now())
		f.counts.end()
		f.away.Store(nil)
	}()
	defer f.recovered(ctx)
	f.log().Info("fallback: the primary is back", "after", time.Since(o.since))
	if f.onChange != nil {
		f.onChange(false, nil)
	}
}

const (
	// settlers is how many charges for an outage are sent at once.
	settlers = 64

	// settling is how long each charge may take.
	settling = 250 * time.Millisecond

	// returning is how long these charges delay the end of the outage. That is enough for most of them. A regular
	// charge that comes first hides how long its bucket was full, and then all that was taken is charged. The
	// remaining charges are sent after the end.
	returning = 2 * time.Second
)

// settle charges the primary once for each bucket of which the secondary has allowed something, while goOn reports
// true. It reports false if more charges fail than succeed. A failed charge is not sent again, because the primary
// may have carried it out. A charge that certainly was not carried out is sent again and does not count: the probe
// decides whether the primary is back. A reset is sent again while the outage lasts.
func (f *Store) settle(ctx context.Context, workers int, goOn func() bool) bool {
	all := f.spent.all()
	var next, charged, failed atomic.Int64
	var running sync.WaitGroup
	for range min(workers, len(all)) {
		running.Go(func() {
			defer f.recovered(ctx)
			for failed.Load() <= charged.Load() && ctx.Err() == nil && goOn() {
				i := next.Add(1) - 1
				if i >= int64(len(all)) {
					return
				}
				d, found := f.spent.take(all[i])
				if !found {
					continue
				}
				switch did, err := f.charge(ctx, d); {
				case errors.Is(err, store.ErrNotCharged): // and will be tried again: a shard that is down holds up no other
				case err != nil:
					failed.Add(1)
				case did > 0:
					charged.Add(1)
				}
			}
		})
	}
	running.Wait()
	return failed.Load() <= charged.Load()
}

// settleLate charges the primary for what was allowed while an outage began or ended, and for single calls that did
// not reach it. It tries until nothing is left or until the next outage, after which the rest is charged.
func (f *Store) settleLate() {
	if !f.settling.CompareAndSwap(false, true) {
		return
	}
	f.prober.start(func(ctx context.Context) {
		defer func() {
			f.settling.Store(false)
			if f.isBack() && !f.spent.empty() { // one came meanwhile
				f.settleLate()
			}
		}()
		wait := f.prober.every / firstProbe
		for f.settle(ctx, 1, f.isBack); !f.spent.empty() && f.isBack(); f.settle(ctx, 1, f.isBack) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			wait = min(2*wait, f.prober.every)
		}
	})
}

// charge resets the primary's bucket if that is due, then charges it for the spending, into debt if necessary, and then
// blocks or unblocks it if that is due. It returns how many of these calls the primary has carried out. A reset and a
// block are sent again while the outage lasts, a charge only if it certainly was not carried out.
func (f *Store) charge(ctx context.Context, d due) (done int, err error) {
	defer func() {
		if errors.Is(err, store.ErrNotCharged) || err != nil && (d.reset || d.block.due) && f.away.Load() != nil {
			f.spent.again(d)
		}
		f.spent.settled(d)
	}()
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	charges, states := make([]store.Charge, 1), make([]store.State, 1)
	take := func(c store.Charge) {
		if err != nil || c.Cost == 0 && c.Refilled == 0 && c.Block == 0 {
			return
		}
		charges[0] = c
		if _, err = f.primary.Take(ctx, charges, states); err != nil {
			f.failures.Log(ctx, fmt.Errorf("charging for an outage: %w", err))
			return
		}
		done++
		if c.Owed {
			f.counts.charged.Add(c.Cost + c.Refilled)
		}
		// Or the next outage would begin with what was spent in this one.
		f.known.keep(charges, states, f.known.now())
	}
	of := store.Charge{Policy: d.charge.Policy, Key: d.charge.Key}
	if d.reset {
		of.Limit, of.Cost = d.charge.Limit, store.Reset
		take(of)
		d.reset = err != nil
	}
	left := d.block.left(f.blocks.now())
	if d.block.lock && d.charge.Cost > 0 {
		d.charge.Block = max(0, left)
	}
	sends := err == nil
	take(d.charge)
	if sends && !errors.Is(err, store.ErrNotCharged) {
		d.spent, d.taken = 0, 0
		d.block.due = d.block.due && !d.block.lock
	}
	if d.block.due && !d.block.lock {
		of.Limit, of.Cost, of.Block = anyLimit, 0, left
		take(of)
		d.block.due = err != nil
	}
	return done, err
}

func (f *Store) log() *slog.Logger { return cmp.Or(f.logger, slog.Default()) }

// recovered keeps a panic of a Store or of onChange in our goroutines from ending the process.
func (f *Store) recovered(ctx context.Context) {
	if p := recover(); p != nil {
		f.failures.Log(ctx, fmt.Errorf("panic: %v", p))
	}
}
