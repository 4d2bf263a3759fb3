package denialcache

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/counter"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/internal/shortkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// defaultMaxLines takes 400 KB, and 4 MB if every slot holds a line.
	defaultMaxLines = 1 << 14
	defaultMaxAge   = time.Second
)

// Config configures [New]. The zero value is ready to use.
type Config struct {
	// MaxKeys is for how many buckets a denial is remembered, at about 150 bytes each and the names. It is rounded
	// up to a power of two. Default 16,384. A Key longer than 256 bytes is kept as its SHA-256.
	MaxKeys int

	// MaxAge is how long a denial is used, counted from when its call was sent, in whole microseconds. Default 1
	// second.
	MaxAge time.Duration

	// Clock returns the time. Default: the monotonic clock of the machine, which may run 0.1 % slower than that of
	// the Store. If the Store has a Clock, set the same one here.
	Clock func() time.Time
}

// New returns a Store that answers as s does, and refuses calls that s is certain to refuse. It panics if s is nil,
// or if cfg.MaxKeys or cfg.MaxAge is negative.
func New(s store.Store, cfg Config) *Store {
	if s == nil {
		panic("denialcache: New: s is nil: must be a store.Store")
	}
	if cfg.MaxKeys < 0 {
		panic(fmt.Sprintf("denialcache: New: Config.MaxKeys %d: must be positive; 0 means the default of %d", cfg.MaxKeys, defaultMaxLines))
	}
	if cfg.MaxAge < 0 {
		panic(fmt.Sprintf("denialcache: New: Config.MaxAge %v: must be positive; 0 means the default of %v", cfg.MaxAge, defaultMaxAge))
	}
	maxKeys := cmp.Or(cfg.MaxKeys, defaultMaxLines)
	return &Store{
		store:  s,
		clock:  cfg.Clock,
		start:  time.Now(),
		maxAge: cmp.Or(cfg.MaxAge, defaultMaxAge).Microseconds(),
		seed:   maphash.MakeSeed(),
		slots:  make([]slot, 1<<bits.Len(uint(maxKeys-1))),
	}
}

// A Store is a [store.Store] that remembers the state of buckets that have refused calls. Make it with [New]. It
// has no locks. A call that it refuses writes no memory that other cores write, so that all cores can refuse a flood
// on one key.
type Store struct {
	store  store.Store
	clock  func() time.Time // nil: the monotonic clock
	start  time.Time
	latest atomic.Int64 // of clock, that a call was sent at
	maxAge int64
	seed   maphash.Seed
	slots  []slot

	answered counter.Counter // calls that were refused here
}

// Unwrap returns the store passed to [New].
func (d *Store) Unwrap() store.Store { return d.store }

// now returns the time in microseconds.
func (d *Store) now() int64 {
	if d.clock != nil {
		return d.clock().UnixMicro()
	}
	return time.Since(d.start).Microseconds()
}

// Take implements [store.Store].
func (d *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return d.store.Take(ctx, charges, states) // which charges nothing, and says so
	}
	var few [4]visit // on the stack
	visits := few[:0]
	for i := range charges {
		visits = append(visits, d.look(&charges[i]))
	}
	now := d.now()
	if d.refuses(visits, charges, states, now) {
		d.answered.Add(1)
		return false, nil
	}

	forward := d.forward(now)
	for i := range visits {
		visits[i].begin(&charges[i])
	}
	ok, err := d.store.Take(ctx, charges, states)
	keep := false
	for i := range visits {
		keep = visits[i].end(ok, err) || keep
	}
	if keep && forward {
		received := d.now()
		for i := range visits {
			d.keep(&visits[i], &charges[i], &states[i], ok, now, received)
		}
	}
	return ok, err
}

// Inspect implements [store.Inspector]. It calls the Inspector passed to [New].
func (d *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return store.Inspect(ctx, d.store, policy, key)
}

// Forget drops what is known of a bucket. Call it after something other than a call of this Store has added tokens.
// Running calls do not remember the bucket either.
func (d *Store) Forget(policy, key string) { d.slot(policy, shortkey.Of(key)).stamp.Add(change) }

// slot returns the slot of a bucket with a short key.
func (d *Store) slot(policy, key string) *slot {
	hash := 31*maphash.String(d.seed, policy) + maphash.String(d.seed, key)
	return &d.slots[hash&uint64(len(d.slots)-1)]
}

// look returns the slot of c's bucket, and its line if it has one.
func (d *Store) look(c *store.Charge) visit {
	key := shortkey.Of(c.Key)
	v := visit{slot: d.slot(c.Policy, key), key: key}
	if l := v.slot.line.Load(); l != nil && l.Key == key && l.Policy == c.Policy {
		v.line = l
	}
	return v
}

// refuses reports whether a call is certain to be refused. If so, it has filled its states.
func (d *Store) refuses(visits []visit, charges []store.Charge, states []store.State, now int64) bool {
	refused := false
	for i := range visits {
		c, l := &charges[i], visits[i].line
		if c.Cost <= 0 || c.Owed || l == nil || l.Limit != c.Limit || now < l.Received || now-l.Sent > d.maxAge {
			return false
		}
		short, certain := l.answer(c, now, &states[i])
		if !certain {
			return false
		}
		refused = refused || short && !c.Shadow
	}
	if !refused {
		return false
	}
	// Only now, when the last line was read, so that a call of several charges sees all of another or
	// nothing.
	for i := range visits {
		if visits[i].slot.stamp.Load() != visits[i].line.stamp {
			return false
		}
	}
	return true
}

// forward reports whether no call was sent at a later time than now. Otherwise the bucket does not refill before
// the clock has caught up, and no State shows that.
func (d *Store) forward(now int64) bool {
	if d.clock == nil {
		return true
	}
	for {
		latest := d.latest.Load()
		if now <= latest {
			return now == latest
		}
		if d.latest.CompareAndSwap(latest, now) {
			return true
		}
	}
}

// keep stores the answer of a charge's bucket, if it shows what the bucket holds.
func (d *Store) keep(v *visit, c *store.Charge, s *store.State, ok bool, sent, received int64) {
	if !v.keeps || received < sent || s.Degraded {
		return
	}
	l := &line{Line: infer.Line{Limit: c.Limit, Sent: sent, Received: received}, stamp: v.stamp, denied: sent}
	if s.Blocked {
		if l.blocked, l.Least, l.Most = infer.Blocked(c, s); l.blocked == 0 {
			return
		}
	} else if l.Least, l.Most = infer.Credits(c, s); l.Least > l.Most {
		return
	}
	if v.line != nil {
		l.Policy, l.Key = v.line.Policy, v.line.Key
	} else {
		name := c.Policy + v.key // a copy: they may be parts of something large
		l.Policy, l.Key = name[:len(c.Policy)], name[len(c.Policy):]
	}
	if ok {
		// The line is renewed for a while only, or each call of a bucket that was once empty would allocate.
		if l.denied = v.line.denied; sent-l.denied > d.maxAge {
			return
		}
	}
	v.slot.line.Store(l)
}
