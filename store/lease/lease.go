package lease

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	defaultFraction = 0.1
	defaultHold     = 500 * time.Millisecond

	// defaultMaxLots takes 400 KB, and 5 MB if every slot holds a lot.
	defaultMaxLots = 1 << 14
)

// Config configures [New]. The zero value is ready to use.
type Config struct {
	// Fraction is the largest part of a bucket's burst that is held here, above 0 and up to 1. Default 0.1. A
	// bucket is not leased if that part is less than 2 tokens.
	Fraction float64

	// Hold is the longest time that tokens are held unspent. Default 500 ms. A key that is used less often is not
	// leased.
	Hold time.Duration

	// MaxKeys is how many buckets are leased at most, at about 300 bytes each and the names. It is rounded up to a
	// power of two. Default 16,384. Calls for other buckets go to the store.
	MaxKeys int

	// Clock returns the time. Default: the monotonic clock of the machine, which may run 0.1 % slower than that of
	// the Store. If the Store has a Clock, set the same one here. Nothing is leased if its times have no monotonic
	// reading (see package time). Such a clock may go back, and the Store, which does not know what is spent here,
	// might refill twice.
	Clock func() time.Time
}

// New returns a Store that leases tokens of s. Close it to give back the tokens that it holds.
//
// A Key longer than 256 bytes is passed to s as its SHA-256. New panics if s is nil, if cfg.Fraction is not from 0
// to 1, or if cfg.Hold or cfg.MaxKeys is negative.
func New(s store.Store, cfg Config) *Store {
	if s == nil {
		panic("lease: New: s is nil: must be a store.Store")
	}
	if !(cfg.Fraction >= 0 && cfg.Fraction <= 1) {
		panic(fmt.Sprintf("lease: New: Config.Fraction %v: must be above 0 and at most 1; 0 means the default of %v", cfg.Fraction, defaultFraction))
	}
	if cfg.Hold < 0 {
		panic(fmt.Sprintf("lease: New: Config.Hold %v: must be positive; 0 means the default of %v", cfg.Hold, defaultHold))
	}
	if cfg.MaxKeys < 0 {
		panic(fmt.Sprintf("lease: New: Config.MaxKeys %d: must be positive; 0 means the default of %d", cfg.MaxKeys, defaultMaxLots))
	}
	l := &Store{
		store:    s,
		fraction: cmp.Or(cfg.Fraction, defaultFraction),
		hold:     cmp.Or(cfg.Hold, defaultHold),
		clock:    cfg.Clock,
		start:    time.Now(),
		seed:     maphash.MakeSeed(),
		round:    make(chan struct{}, 1), // and no Mutex, at which time stands still in a bubble of a test
		slots:    make([]slot, 1<<bits.Len(uint(cmp.Or(cfg.MaxKeys, defaultMaxLots)-1))),
	}
	if cfg.Clock != nil {
		l.start = cfg.Clock()
		l.off.Store(l.start == l.start.Round(0)) // which strips a monotonic reading
	}
	l.collector = time.AfterFunc(time.Hour, l.collect)
	l.collector.Stop()
	return l
}

// A Store is a [store.Store] that holds some tokens of the buckets of another one. Make it with [New]. A call that
// is paid from them takes no locks and does not allocate.
type Store struct {
	store    store.Store
	fraction float64
	hold     time.Duration
	clock    func() time.Time // nil: the monotonic clock
	start    time.Time
	seed     maphash.Seed
	slots    []slot
	off      atomic.Bool // all passes through

	collector  *time.Timer
	collecting atomic.Bool   // the collector is set: there may be lots to give back
	round      chan struct{} // holds one while lots are collected: by the collector, or by Close

	drawn, returned, lost atomic.Int64 // tokens, for Stats
}

// A slot holds the lot of one of the buckets that fall into it.
type slot struct {
	lot atomic.Pointer[lot]

	// drawing is set while a call owns the slot. Only that call puts a lot with tokens into it.
	drawing atomic.Bool

	// stamp counts resets and blocks of its buckets; see reset.go.
	stamp atomic.Uint32

	// seen is a tag: which bucket was last charged without a lease, and when.
	seen atomic.Uint64
}

// Unwrap returns the store passed to [New].
func (s *Store) Unwrap() store.Store { return s.store }

// now returns the time in microseconds.
func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock().Sub(s.start).Microseconds()
	}
	return time.Since(s.start).Microseconds()
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	charges = shortkey.Charges(charges)
	if s.off.Load() || ctx.Err() != nil {
		return s.store.Take(ctx, charges, states)
	}
	var few [4]visit // on the stack
	visits := few[:0]
	allSimple := true
	for i := range charges {
		c := &charges[i]
		v := s.look(c)
		allSimple = allSimple && simple(c) && (v.lot == nil || v.lot.Limit == c.Limit)
		visits = append(visits, v)
	}
	now := s.now() // now that the lots were found, none of which was made later
	if !allSimple {
		return s.pass(ctx, visits, charges, states, now)
	}
	paid := 0
	for i := range visits {
		v := &visits[i]
		if v.paid = v.lot != nil && v.lot.spend(s, &charges[i], now, &states[i]); v.paid {
			paid++
		}
	}
	if paid == len(visits) {
		return true, nil
	}
	return s.draw(ctx, visits, charges, states)
}

// simple reports whether c may be paid from a lot.
func simple(c *store.Charge) bool {
	return c.Cost > 0 && c.MaxWait <= 0 && !c.Shadow && !c.Owed && c.Block == 0
}

// look returns the slot of c's bucket, and its lot if it has one.
func (s *Store) look(c *store.Charge) visit {
	hash := 31*maphash.String(s.seed, c.Policy) + maphash.String(s.seed, c.Key)
	v := visit{slot: &s.slots[hash&uint64(len(s.slots)-1)], hash: hash}
	if l := v.slot.lot.Load(); l != nil && l.of(c) {
		v.lot = l
	}
	return v
}
