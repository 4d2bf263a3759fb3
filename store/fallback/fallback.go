package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/deadline"
	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Config configures [New]. The zero value is ready to use, for a single replica.
type Config struct {
	// Replicas is how many replicas share the traffic. While the secondary answers, each limit is divided by it.
	// Default 1: each replica allows the whole limit. If more replicas run than Replicas says, they allow too much
	// during an outage.
	Replicas int

	// ReplicasFunc, if set, returns the current number of replicas, for example from an autoscaler. Leave Replicas
	// 0 then. Below 1 counts as 1. New calls it, and later up to ten times a second. It must be fast, must not
	// block, and must be safe for concurrent use.
	ReplicasFunc func() int

	// Slow is how long the primary may take. A call that takes as long or longer counts as failed, but its answer
	// is used if it comes by the deadline of its context. Callers must have at least that time: New of package ratelimit
	// returns an error if Slow is longer than its Config.Timeout. Default 50 ms.
	Slow time.Duration

	// Failures is how many failed calls make the Store give up the primary. They must fail within about a second, and be
	// at least a fifth of the calls that needed the server. Or they must fail in a row for 100 ms. Default 5.
	Failures int

	// ProbeEvery is the longest time between two probes while the primary is unavailable. The first probes come
	// sooner. A probe is a call that nobody waits for. It charges a bucket of a policy "fallback-probe". Default
	// 200 ms.
	ProbeEvery time.Duration

	// MaxKeys is for how many buckets the primary is charged after an outage. It is not charged for further buckets.
	// Default 65,536. A bucket takes about 200 bytes and its name, until it is settled.
	MaxKeys int

	// OnChange, if set, is called after the primary was given up, with the reason, and after it is back, with a nil
	// reason. The calls never overlap. If a call takes so long that the primary is given up and back meanwhile, these
	// changes are not reported. A request waits for the call, so OnChange must not block. It must not close the Store.
	OnChange func(away bool, reason error)

	// Logger receives the same changes, and a line a minute while the primary is unavailable. It also receives failures
	// of calls that the secondary then answered, each kind at most once a second. Default slog.Default().
	Logger *slog.Logger
}

// New returns a Store that answers with primary, and with secondary while primary is unavailable. If secondary is
// nil, New makes a [memstore.Store] with its default Config. Close the Store to stop its probes.
//
// A Key longer than 256 bytes is passed to both stores as its SHA-256. New returns an error if primary is nil, if a
// number of cfg is negative, or if both Replicas and ReplicasFunc are set.
func New(primary, secondary store.Store, cfg Config) (*Store, error) {
	if primary == nil {
		return nil, errors.New("fallback: New: primary is nil: must be a store.Store")
	}
	for field, n := range map[string]int64{
		"Replicas":   int64(cfg.Replicas),
		"Slow":       int64(cfg.Slow),
		"Failures":   int64(cfg.Failures),
		"ProbeEvery": int64(cfg.ProbeEvery),
		"MaxKeys":    int64(cfg.MaxKeys),
	} {
		if n < 0 {
			return nil, fmt.Errorf("fallback: New: Config.%s %d: must be positive; 0 means the default", field, n)
		}
	}
	if cfg.Replicas != 0 && cfg.ReplicasFunc != nil {
		return nil, fmt.Errorf("fallback: New: Config.Replicas %d and Config.ReplicasFunc: must not both be set", cfg.Replicas)
	}
	slow := cmp.Or(cfg.Slow, 50*time.Millisecond)
	f := &Store{
		primary:   primary,
		secondary: secondary,
		start:     time.Now(),
		slow:      slow,
		terms:     deadline.Terms{Timeout: slow},
		tally:     tally{maxFailures: cmp.Or(cfg.Failures, 5)},
		used:      used{maxKeys: cmp.Or(cfg.MaxKeys, 1<<16), of: make(map[account]use)},
		replicas:  replicas{current: cfg.ReplicasFunc},
		onChange:  cfg.OnChange,
		logger:    cfg.Logger,
		failures:  failure.Log{Logger: cfg.Logger, Message: "fallback: the primary failed or was slow"},
	}
	f.replicas.number.Store(int64(max(1, cfg.Replicas)))
	f.replicas.refresh(f.now)
	f.prober.every, f.prober.probe = cmp.Or(cfg.ProbeEvery, 200*time.Millisecond), f.probe
	f.prober.ctx, f.prober.stop = context.WithCancel(context.Background())
	if secondary == nil {
		var err error
		if f.own, err = memstore.New(memstore.Config{}); err != nil {
			return nil, fmt.Errorf("fallback: New: %w", err)
		}
		f.secondary = f.own
	}
	return f, nil
}

// A Store is a [store.Store] with a second store for outages. Make it with [New].
type Store struct {
	primary, secondary store.Store
	own                *memstore.Store // secondary, if New made it; nil otherwise

	start time.Time
	slow  time.Duration
	terms deadline.Terms // of calls without a deadline: they end after slow

	away   atomic.Pointer[outage] // nil: primary answers
	tally  tally
	prober prober

	used     used
	replicas replicas

	// Both are in microseconds since start. blocked is until when secondary may have blocked buckets. blockChanged is when
	// a bucket of secondary was last blocked or unblocked.
	blocked, blockChanged atomic.Int64

	onChange  func(away bool, reason error)
	reporting sync.Mutex
	reported  *outage // the last one that report has reported; nil: that the primary is used

	logger   *slog.Logger // nil: slog.Default(), as it is at each line
	failures failure.Log
	counts   counts
}

// now returns the time since the Store was made, in microseconds.
func (f *Store) now() int64 { return time.Since(f.start).Microseconds() }

// Slow returns [Config.Slow], or its default.
func (f *Store) Slow() time.Duration { return f.slow }

// Away returns the reason why the primary was given up, or nil while it is used.
func (f *Store) Away() error {
	if o := f.away.Load(); o != nil {
		return o.reason
	}
	return nil
}

// Close stops the probes, and waits for a running one. A primary that is unavailable then stays given up. Close closes
// secondary only if New made it. It never closes primary.
func (f *Store) Close() error {
	f.prober.close()
	if f.own != nil {
		return f.own.Close()
	}
	return nil
}

// Take implements [store.Store]. It returns an error if both stores fail, or if ctx ends.
func (f *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	charges = keyname.ShortCharges(charges)
	if slices.ContainsFunc(charges, isRelease) {
		return f.release(ctx, charges, states)
	}
	if o := f.away.Load(); o != nil {
		if !store.MayStandIn(ctx) {
			return false, o.refuse()
		}
		return f.answer(ctx, charges, states, true)
	}
	uncharged, sent := true, int64(0)
	if f.blocked.Load() > 0 {
		sent = f.now()
	}
	failed, err := f.settle(ctx, charges, states)
	if err == nil {
		var ok bool
		if ok, failed, err = f.callPrimary(ctx, withoutStandby(charges), states); err == nil {
			f.remember(ctx, charges, states, ok, sent)
			return ok, nil
		}
		uncharged = errors.Is(err, store.ErrNotCharged)
	}
	// A Reset must not look done while the primary keeps the bucket and is still used.
	if !failed || !store.MayStandIn(ctx) || slices.ContainsFunc(charges, isReset) {
		return false, err
	}
	return f.answer(context.WithoutCancel(ctx), charges, states, uncharged)
}

// callPrimary calls the primary. failed reports whether the primary has failed the call, so that the secondary may answer it.
func (f *Store) callPrimary(ctx context.Context, charges []store.Charge, states []store.State) (ok, failed bool, err error) {
	failed, err = f.try(ctx, charges, func(ctx context.Context) error {
		ok, err = f.primary.Take(ctx, charges, states)
		return err
	})
	return ok, failed, err
}

// try makes a call of the primary for the buckets of charges. failed is that of callPrimary. If ctx has no deadline, the call has
// one after Slow.
func (f *Store) try(ctx context.Context, charges []store.Charge, call func(context.Context) error) (failed bool, err error) {
	sent, within := f.now(), ctx
	if _, ok := ctx.(*deadline.Context); !ok { // a deadline.Context has a deadline, and reads the clock to return it
		if _, ok := ctx.Deadline(); !ok {
			limited := &deadline.Context{Parent: ctx, Terms: &f.terms}
			defer limited.End()
			within = limited
		}
	}
	err = call(within)
	return f.judge(ctx, err, charges, sent), err
}
