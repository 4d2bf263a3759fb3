package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/failurelog"
	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/internal/starved"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Config configures [New]. The zero value is ready to use, for a single replica.
type Config struct {
	// Replicas is how many replicas share the traffic. While the secondary answers, each limit is divided by it.
	// Default 1: each replica allows the whole limit. If more replicas run than Replicas says, they allow too much
	// during an outage, and that becomes a debt after it.
	Replicas int

	// ReplicasFunc, if set, returns the current number of replicas, for example from an autoscaler. Leave Replicas
	// 0 then. Below 1 counts as 1. A larger number counts at once, a smaller one after 5 seconds. It is called up
	// to ten times a second, only after failures. It must be fast, must not block, and must be safe for concurrent
	// use.
	ReplicasFunc func() int

	// Slow is how long the primary may take. A call that takes as long or longer counts as failed, but its answer
	// is used if it comes by the deadline of its context. Slow must not be longer than the time that callers have:
	// New of package ratelimit returns an error if it is longer than its Config.Timeout. Default 50 ms.
	Slow time.Duration

	// Failures is how many failed calls make the Store give up the primary. They must fail within about a second,
	// and be at least a fifth of the calls that needed the server. Or they must fail in a row for 100 ms. Default
	// 5.
	Failures int

	// ProbeEvery is the longest time between two probes while the primary is unavailable. The first probes come
	// sooner. A probe is a call that nobody waits for. It charges a bucket of a policy "fallback-probe". Default
	// 200 ms.
	ProbeEvery time.Duration

	// MaxKeys bounds two tables. Default 65,536. The buckets known before an outage take 16 bytes each, allocated
	// at once and rounded up to a power of two. The buckets to charge after it take about 300 bytes each and the
	// names, until their tokens have refilled. https://github.com/go-tokenbucket/ratelimit/blob/main/docs/bounds.md
	// has the details.
	MaxKeys int

	// OnChange, if set, is called when the primary is given up, with the reason, and when it is back, with a nil
	// reason. The calls never overlap. A request waits for the first one, and the outage ends after the second one
	// returns. So OnChange must not block, and must not close the Store.
	OnChange func(away bool, reason error)

	// Logger receives the same changes. It also receives failures that the secondary made up for, each kind at most
	// once a second. Once a minute it receives a line if the primary stays unavailable, or is given up again and
	// again, for example because its round trip is near Slow. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultSlow       = 50 * time.Millisecond
	defaultFailures   = 5
	defaultProbeEvery = 200 * time.Millisecond
	defaultMaxKnown   = 1 << 16
)

// New returns a Store that answers with primary, and with secondary while primary is unavailable. If secondary is
// nil, New makes a [memstore.Store] with its default Config. Close the Store to stop its probes.
//
// A Key longer than 256 bytes is passed to both stores as its SHA-256. New panics if primary is nil, if a number of
// cfg is negative, or if both Replicas and ReplicasFunc are set.
func New(primary, secondary store.Store, cfg Config) *Store {
	if primary == nil {
		panic("fallback: New: primary is nil: must be a store.Store")
	}
	for field, n := range map[string]int64{
		"Replicas":   int64(cfg.Replicas),
		"Slow":       int64(cfg.Slow),
		"Failures":   int64(cfg.Failures),
		"ProbeEvery": int64(cfg.ProbeEvery),
		"MaxKeys":    int64(cfg.MaxKeys),
	} {
		if n < 0 {
			panic(fmt.Sprintf("fallback: New: Config.%s %d: must be positive; 0 means the default", field, n))
		}
	}
	if cfg.Replicas != 0 && cfg.ReplicasFunc != nil {
		panic(fmt.Sprintf("fallback: New: Config.Replicas %d and Config.ReplicasFunc: must not both be set", cfg.Replicas))
	}
	replicas := newReplicas(cfg.Replicas, cfg.ReplicasFunc)
	f := &Store{
		primary:   primary,
		secondary: secondary,
		slow:      cmp.Or(cfg.Slow, defaultSlow),
		terms:     deadline.Terms{Timeout: cmp.Or(cfg.Slow, defaultSlow)},
		tally:     tally{most: cmp.Or(cfg.Failures, defaultFailures)},
		known:     newKnown(cmp.Or(cfg.MaxKeys, defaultMaxKnown)),
		spent:     newLedger(cmp.Or(cfg.MaxKeys, defaultMaxKnown), replicas),
		blocks:    newBlocks(),
		replicas:  replicas,
		onChange:  cfg.OnChange,
		logger:    cfg.Logger,
		failures:  failurelog.Log{Logger: cfg.Logger, Message: "fallback: the primary failed or was slow"},
	}
	f.prober.init(cmp.Or(cfg.ProbeEvery, defaultProbeEvery), f.probe)
	if secondary == nil {
		f.own = memstore.New(memstore.Config{})
		f.secondary = f.own
	}
	return f
}

// A Store is a [store.Store] with a second store for outages. Make it with [New].
type Store struct {
	primary, secondary store.Store
	own                *memstore.Store // secondary, if New made it; nil otherwise
	slow               time.Duration
	terms              deadline.Terms // by slow, of calls without a deadline

	away   atomic.Pointer[outage] // nil: primary answers
	tally  tally
	prober prober

	brief    outage      // that of single calls, in which the primary is not given up
	settling atomic.Bool // settleLate runs

	known known  // what primary said that buckets hold
	spent ledger // what secondary has allowed since

	blocks blocks // that were made or met

	replicas *replicas

	onChange     func(away bool, reason error)
	logger       *slog.Logger // nil: slog.Default(), as it is at each line
	failures     failurelog.Log
	unsteadiness unsteadiness
	counts       counts
}

// Slow returns [Config.Slow], or its default.
func (f *Store) Slow() time.Duration { return f.slow }

// Away returns the reason why the primary was given up, or nil while it is used.
func (f *Store) Away() error {
	if o := f.away.Load(); o != nil {
		return o.reason
	}
	return nil
}

// Close stops the probes, and waits for a running one. If the primary is unavailable then, it stays given up, and
// is not charged for the outage. Close closes secondary only if New made it, and never primary.
func (f *Store) Close() error {
	f.prober.close()
	if f.own != nil {
		return f.own.Close()
	}
	return nil
}

// Take implements [store.Store]. It returns an error if both stores fail, or if ctx ends.
func (f *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges = shortkey.Charges(charges)
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return false, fmt.Errorf("%w: %w", store.ErrAway, o.reason)
		}
		return f.standIn(ctx, o, charges, states)
	}
	if hasReset(charges) {
		return f.takeResets(ctx, charges, states)
	}
	if hasBlock(charges) {
		return f.takeBlocks(ctx, charges, states)
	}
	return f.take(ctx, charges, states)
}

// take is Take while the primary is not given up.
func (f *Store) take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	sent := f.known.now()
	ok, err := f.askPrimary(ctx, charges, states)
	received := f.known.now()
	took := received - sent
	switch {
	case err == nil:
		if blocked := f.known.keep(charges, states, received); blocked || f.blocks.some() {
			f.blocks.learn(charges, states, f.blocks.now()-took)
		}
		f.answered(ctx, took, charges, sent)
		return ok, nil
	case f.blameless(ctx, err, took):
		return false, err
	}
	f.failed(ctx, err, charges, sent)
	if !store.MayStandIn(ctx) || hasReset(charges) || hasBlock(charges) {
		return false, err
	}
	if errors.Is(err, store.ErrNotCharged) {
		return f.standIn(context.WithoutCancel(ctx), cmp.Or(f.away.Load(), &f.brief), charges, states)
	}
	return f.standInOnce(context.WithoutCancel(ctx), charges, states)
}

// answered counts a call that the primary has answered. An answer that is late because this process lacks processor time
// counts neither as a success nor as a failure.
func (f *Store) answered(ctx context.Context, took int64, charges []store.Charge, sent int64) {
	switch {
	case !f.isSlow(took):
		f.tally.succeeded(took)
	case !starved.Since(time.Now()).Busy(f.slow):
		f.failed(ctx, errSlow, charges, sent)
	}
}

// blameless reports whether err, the error of a call of the primary, says nothing about the primary: the call was
// invalid, this process is overloaded, or the caller left or gave the primary too little time.
func (f *Store) blameless(ctx context.Context, err error, took int64) bool {
	return errors.Is(err, store.ErrInvalidCall) || errors.Is(err, store.ErrOverloaded) || errors.Is(ctx.Err(), context.Canceled) ||
		!f.isSlow(took) && over(ctx)
}

// isSlow reports whether a call that took so many microseconds was slow.
func (f *Store) isSlow(took int64) bool { return took >= f.slow.Microseconds() }

// errSlow is the reason for giving up a primary that answers too late.
var errSlow = errors.New("fallback: the primary is slow")

// askPrimary calls the primary. The deadline is that of ctx, or Slow from now if ctx has none.
func (f *Store) askPrimary(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if !hasDeadline(ctx) {
		limited := &deadline.Context{Parent: ctx, Terms: &f.terms}
		defer limited.End()
		ctx = limited
	}
	return f.primary.Take(ctx, charges, states)
}

func hasDeadline(ctx context.Context) bool {
	// A deadline.Context has one, which counts from when somebody asks for it.
	if _, ok := ctx.(*deadline.Context); ok {
		return true
	}
	_, ok := ctx.Deadline()
	return ok
}

// over reports whether the deadline of ctx has passed. A primary may notice that slightly before ctx does.
func over(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// failed counts a call that was sent at that time and failed for reason, or was slow.
func (f *Store) failed(ctx context.Context, reason error, charges []store.Charge, sent int64) {
	counts, tooMany := f.tally.failed(sent)
	if tooMany {
		defer f.giveUp(reason, charges, sent) // also if the Logger panics, or no failure would count any more
	}
	if counts {
		f.failures.Log(ctx, reason)
	}
}
