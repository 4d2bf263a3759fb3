package denialcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// defaultMaxKeys slots take 800 KB, and 4 MB if each holds a denial.
	defaultMaxKeys = 1 << 14
	defaultMaxAge  = time.Second
)

// Config configures [New]. The zero value is ready to use.
type Config struct {
	// MaxKeys is for how many buckets a denial is remembered. It is rounded up to a power of two. A bucket takes about
	// 150 bytes and its name. A Key longer than 256 bytes is kept as its SHA-256. Default 16,384.
	MaxKeys int

	// MaxAge is how long a denial is used, counted from when its call was sent, in whole microseconds. Default 1
	// second.
	MaxAge time.Duration

	// Clock returns the time. Default: the monotonic clock of the machine, which may run 0.1 % slower than the clock of
	// the Store. If the Store has a Clock, set the same one here.
	Clock func() time.Time
}

// New returns a Store that answers as s does, and refuses calls that s is certain to refuse. It returns an error
// if s is nil, or if cfg.MaxKeys or cfg.MaxAge is negative.
func New(s store.Store, cfg Config) (*Store, error) {
	if s == nil {
		return nil, errors.New("denialcache: New: s is nil: must be a store.Store")
	}
	if cfg.MaxKeys < 0 {
		return nil, fmt.Errorf("denialcache: New: Config.MaxKeys %d: must be positive; 0 means the default of %d", cfg.MaxKeys, defaultMaxKeys)
	}
	if cfg.MaxAge < 0 {
		return nil, fmt.Errorf("denialcache: New: Config.MaxAge %v: must be positive; 0 means the default of %v", cfg.MaxAge, defaultMaxAge)
	}
	maxKeys := cmp.Or(cfg.MaxKeys, defaultMaxKeys)
	return &Store{
		store:  s,
		clock:  cfg.Clock,
		start:  time.Now(),
		maxAge: cmp.Or(cfg.MaxAge, defaultMaxAge).Microseconds(),
		seed:   maphash.MakeSeed(),
		slots:  make([]slot, 1<<bits.Len(uint(maxKeys-1))),
	}, nil
}

// A Store is a [store.Store] that remembers the state of buckets that have refused calls. Make it with [New].
type Store struct {
	store  store.Store
	clock  func() time.Time // nil: the monotonic clock
	start  time.Time
	maxAge int64
	seed   maphash.Seed

	// One lock guards all slots. So a call of several charges sees all changes of another call, or none. Refused calls only
	// read, so they do not wait for each other.
	mu     sync.RWMutex
	slots  []slot
	latest int64 // the latest time by clock at which a call was sent

	answered atomic.Int64 // calls that were refused here
}

var _ store.Blocker = (*Store)(nil)

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
func (d *Store) Take(ctx context.Context, charges []store.Charge, states []store.State) (ok bool, err error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return d.store.Take(ctx, charges, states) // the store charges nothing, and returns the right error
	}
	var few [4]lookup // on the stack
	lookups := few[:0]
	for i := range charges {
		key := keyname.Short(charges[i].Key)
		lookups = append(lookups, lookup{slot: d.slot(charges[i].Policy, key), key: key})
	}
	if d.refuses(lookups, charges, states) {
		d.answered.Add(1)
		return false, nil
	}
	sent, forward := d.begin(lookups, charges)
	err = errPanic // stays, if the store panics
	defer func() {
		received := d.now()
		d.mu.Lock()
		defer d.mu.Unlock()
		for i := range lookups {
			if l := &lookups[i]; l.end(&charges[i], ok, err) && forward && received >= sent {
				d.keep(l, &charges[i], &states[i], ok, sent, received)
			}
		}
	}()
	ok, err = d.store.Take(ctx, charges, states)
	return ok, err
}

var errPanic = errors.New("denialcache: the store has panicked")

// begin runs before a call is sent, and returns the time. forward reports whether the clock has not gone back. If it has, a
// bucket does not refill until the clock has caught up, and no State shows that.
func (d *Store) begin(lookups []lookup, charges []store.Charge) (now int64, forward bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range lookups {
		lookups[i].begin(&charges[i])
	}
	now = d.now()
	forward = now >= d.latest
	d.latest = max(d.latest, now)
	return now, forward
}

// Block implements [store.Blocker]. Like a refund, it drops the denial of the bucket.
func (d *Store) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	if err := store.ValidateBlock(policy, key, b); err != nil {
		return false, err
	}
	slot := d.slot(policy, keyname.Short(key))
	d.mu.Lock()
	slot.adds()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		slot.added()
	}()
	return store.SetBlock(ctx, d.store, policy, key, b)
}

// Inspect implements [store.Inspector]. It calls the Inspector passed to [New].
func (d *Store) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	return store.Inspect(ctx, d.store, policy, key)
}

// Forget drops what is known of a bucket. Call it after tokens were added to the bucket without this Store. Calls of the
// bucket that are under way are not remembered either.
func (d *Store) Forget(policy, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slot(policy, keyname.Short(key)).change()
}

// slot returns the slot of a bucket with a short key.
func (d *Store) slot(policy, key string) *slot {
	hash := 31*maphash.String(d.seed, policy) + maphash.String(d.seed, key)
	return &d.slots[hash&uint64(len(d.slots)-1)]
}

// refuses reports whether a call is certain to be refused. If so, it has filled its states.
func (d *Store) refuses(lookups []lookup, charges []store.Charge, states []store.State) (refused bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	now := d.now()
	for i := range lookups {
		c, known := &charges[i], lookups[i].slot.denial
		if c.Cost <= 0 || c.Owed || c.Settles || !known.of(c.Policy, lookups[i].key) || known.Limit != c.Limit || now < known.Received || now-known.Sent > d.maxAge {
			return false
		}
		short, certain := known.answer(c, now, &states[i])
		if !certain {
			return false
		}
		refused = refused || short && !c.Shadow
	}
	return refused
}

// keep makes a denial of the answer of a charge's bucket, if the answer shows how many tokens the bucket holds.
func (d *Store) keep(l *lookup, c *store.Charge, s *store.State, ok bool, sent, received int64) {
	if s.Degraded || c.Limit.IsConcurrency() { // a slot may be free at any time
		return
	}
	made := &denial{Content: infer.Content{Limit: c.Limit, Sent: sent, Received: received, Rest: s.ResetAfter.Microseconds()}, denied: sent}
	if s.Blocked {
		if made.blocked, made.Least, made.Most = infer.Blocked(c, s); made.blocked == 0 {
			return
		}
	} else if made.Least, made.Most = infer.Credits(c, s); made.Least > made.Most {
		return
	}
	if l.denial != nil {
		made.Policy, made.Key = l.denial.Policy, l.denial.Key
	} else {
		name := c.Policy + l.key // a copy: the strings may be parts of something large
		made.Policy, made.Key = name[:len(c.Policy)], name[len(c.Policy):]
	}
	if ok {
		// An allowed call renews the denial only for maxAge after the refusal. Otherwise each call of a bucket that was once
		// empty would allocate.
		if made.denied = l.denial.denied; sent-made.denied > d.maxAge {
			return
		}
	}
	l.slot.denial = made
}
