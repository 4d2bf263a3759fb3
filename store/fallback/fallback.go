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

// Config configures New. The zero value is ready to use, for a single replica.
type Config struct {
	// Replicas is by how much each limit is divided while the secondary answers: how many replicas share
	// the traffic, each with a secondary of its own. Default 1: each replica allows the whole limit. If more run,
	// what they allow above the limit in an outage is a debt after it.
	Replicas int

	// ReplicasFunc, if set, returns Replicas as it is now, for example from an autoscaler. Replicas must then be 0. A
	// number below 1 counts as 1. A larger number counts at once, a smaller one when it has held for 5 seconds.
	//
	// Callers call ReplicasFunc at most about ten times a second, and only if the primary has failed. It must be
	// cheap, safe for concurrent use, and must not block.
	ReplicasFunc func() int

	// Slow is how long the primary may take. A call that takes as long or longer counts as failed, though its
	// answer is used if there is one by the deadline of its context. It must not be longer than the time that
	// callers have, or a hung primary would not be noticed: New of package ratelimit refuses one that is longer
	// than its Config.Timeout. Default 50 ms.
	Slow time.Duration

	// Failures is how many calls must fail before the primary is given up: as many within about a second,
	// and at least a fifth of those that it needed its server for, or as many in a row for 100 ms. Default 5.
	Failures int

	// ProbeEvery is how long it may take until the primary is asked again while it is away, by one call that
	// nobody waits for. The first such probes follow sooner. They charge buckets of a policy "fallback-probe".
	// Default 200 ms.
	ProbeEvery time.Duration

	// MaxKeys bounds how many buckets are known from before an outage, at 16 bytes each, which are taken at
	// once, and how many are kept to be charged after it, at about 300 bytes each and the names, for as long as
	// what was spent has not refilled. The first is rounded up to a power of two. Default 65,536. Where there is
	// no room for a bucket, the policies share it, and within a policy those that have spent least are forgotten.
	MaxKeys int

	// OnChange, if set, is told when the primary is given up, and why, and when it is back, with a nil
	// reason: never two of these at once. A caller waits for the first, and the end of the outage for the
	// second, so it must not block, nor close the Store.
	OnChange func(away bool, reason error)

	// Logger is told of the same, and of failures that the secondary made up for, each kind at most once a
	// second. It is told once a minute of a primary that is given up again and again, such as one whose round
	// trip is near Slow, or that stays away. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultSlow       = 50 * time.Millisecond
	defaultFailures   = 5
	defaultProbeEvery = 200 * time.Millisecond
	defaultMaxKnown   = 1 << 16
)

// New returns a Store that answers with primary, and with secondary while primary is unavailable. If secondary is nil, New
// makes a memstore.Store with its default Config.
//
// A Key longer than 256 bytes is passed to both as its SHA-256. New panics if primary is nil or if a number of cfg is
// negative. Close the Store to stop its probes.
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
			panic(fmt.Sprintf("fallback: New: Config.%s %d: must be positive, or 0 for the default", field, n))
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

// A Store is a store.Store with another to stand in for it. Make it with New.
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

	replicas *replicas

	onChange     func(away bool, reason error)
	logger       *slog.Logger // nil: slog.Default(), as it is at each line
	failures     failurelog.Log
	unsteadiness unsteadiness
}

// Slow returns how long the primary may take: Config.Slow or its default.
func (f *Store) Slow() time.Duration { return f.slow }

// Away returns why the primary was given up, and nil while it is asked.
func (f *Store) Away() error {
	if o := f.away.Load(); o != nil {
		return o.reason
	}
	return nil
}

// Close stops probing, and waits for a probe that is under way. A primary that is away stays given up, and is not
// charged for what it has not been charged for by then. Close does not close primary, and closes secondary only if New
// made it.
func (f *Store) Close() error {
	f.prober.close()
	if f.own != nil {
		return f.own.Close()
	}
	return nil
}

// Take implements store.Store. It fails if both fail, or if ctx ends.
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
	return f.take(ctx, charges, states)
}

// take is Take while the primary is not given up.
func (f *Store) take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	sent := f.known.now()
	ok, err := f.askPrimary(ctx, charges, states)
	received := f.known.now()
	took := received - sent
	slow := took >= f.slow.Microseconds()
	switch {
	case err == nil:
		f.known.keep(charges, states, received)
		switch {
		case !slow:
			f.tally.succeeded(took)
		case !starved.Since(time.Now()).Busy(f.slow):
			f.failed(ctx, errSlow, charges, sent)
		}
		return ok, nil
	case errors.Is(err, store.ErrInvalidCall), errors.Is(err, store.ErrOverloaded), errors.Is(ctx.Err(), context.Canceled), !slow && over(ctx):
		return false, err // which says nothing about primary
	}
	f.failed(ctx, err, charges, sent)
	if !store.MayStandIn(ctx) || hasReset(charges) {
		return false, err
	}
	if errors.Is(err, store.ErrNotCharged) {
		return f.standIn(context.WithoutCancel(ctx), cmp.Or(f.away.Load(), &f.brief), charges, states)
	}
	return f.standInOnce(context.WithoutCancel(ctx), charges, states)
}

// errSlow is why a primary is given up that answers, but not soon enough.
var errSlow = errors.New("fallback: the primary is slow")

// askPrimary asks the primary, which has until the deadline of ctx, or if there is none as long as it may take.
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

// over reports whether the deadline of ctx has passed. A primary may notice that a little before ctx does.
func over(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// failed counts a call that was sent then and failed for reason, or was slow.
func (f *Store) failed(ctx context.Context, reason error, charges []store.Charge, sent int64) {
	counts, tooMany := f.tally.failed(sent)
	if tooMany {
		defer f.giveUp(reason, charges, sent) // also if the Logger panics, or no failure would count any more
	}
	if counts {
		f.failures.Log(ctx, reason)
	}
}
