package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// An Inspector is a [Store] that can report the contents of a bucket. All stores and decorators of this module are
// Inspectors. A decorator of a Store that is not one returns an error that wraps [errors.ErrUnsupported].
type Inspector interface {
	// Inspect returns the contents of a bucket and changes nothing. The zero Bucket means that nothing is kept.
	// Inspect returns by ctx's deadline. Its errors are those of Take.
	Inspect(ctx context.Context, policy, key string) (Bucket, error)
}

// A Bucket is what a [Store] keeps of a bucket. The zero Bucket was never charged, or has refilled and was
// forgotten. For example, at a limit of 1 per second with a burst of 5, a full bucket that was charged 3 two
// seconds ago is
//
//	Bucket{Limit: limit, Credits: 2_000_000, Age: 2 * time.Second}
//
// because a token is worth 1,000,000 credits. Its State has a Remaining of 4 and a ResetAfter of 1 second.
type Bucket struct {
	// Limit is the limit of the last charge. It is the zero Limit if nothing is kept.
	Limit Limit

	// Credits is what the bucket held after the last charge, in credits of Limit. It is negative in debt. Of a concurrency
	// limit it is the slots that are free, and negative if more are held than Limit has.
	Credits int64

	// Age is the time since the last charge, in whole microseconds. Credits do not include the refill in that time. It is 0
	// if Limit is a quota or a concurrency limit.
	Age time.Duration

	// Rest is how much longer the period of a quota goes on, in whole microseconds. If it is not above 0, the period has
	// ended, and the bucket is full.
	Rest time.Duration

	// Degraded reports that a stand-in answered, as in [State]. Limit may then be a part of the limit.
	Degraded bool

	// Blocked is how much longer the bucket is blocked, and BlockedSince for how long it has been, in whole microseconds.
	// Both are 0 if the bucket is not blocked. Locked reports that the block is a lock. Reason is [Block.Reason].
	Blocked, BlockedSince time.Duration
	Locked                bool
	Reason                string
}

// Used reports whether the bucket was charged and has not refilled since, or whether a slot is held.
func (b Bucket) Used() bool {
	return b.Limit != Limit{} && b.at(time.Now().UnixMicro(), b.Limit).Tokens < b.Limit.Capacity
}

// State returns the state that a Take with a Cost of 0 would return under l. If l is not b.Limit, the tokens carry
// over as [Charge.Limit] describes.
func (b Bucket) State(l Limit) State {
	c, s := Charge{Limit: l}, State{}
	now := time.Now().UnixMicro() // what matters of it is the calendar of a period that no charge has begun
	kept := b.at(now, l)
	c.Fill(&s, kept.Tokens, duration(l.Rest(kept, now)), b.Blocked, true)
	s.Degraded = b.Degraded
	return s
}

// at returns the bucket under l, for a Bucket that was read at the time now.
func (b Bucket) at(now int64, l Limit) bucket.Bucket {
	at := now - b.Age.Microseconds()
	if b.Limit.IsQuota() {
		at = now + b.Rest.Microseconds()
	}
	return l.Advance(&b.Limit, bucket.Bucket{Tokens: b.Credits, At: at}, now)
}

// Inspect returns what s keeps of a bucket. If s is not an [Inspector], or decorates a Store that is not one, the
// error wraps [errors.ErrUnsupported].
func Inspect(ctx context.Context, s Store, policy, key string) (Bucket, error) {
	if i, ok := s.(Inspector); ok {
		return i.Inspect(ctx, policy, key)
	}
	return Bucket{}, fmt.Errorf("store: %T is not an Inspector: %w", s, errors.ErrUnsupported)
}

// ValidateName returns an error that wraps [ErrInvalidCall] if policy or key is empty. Every Inspector calls it
// first.
func ValidateName(policy, key string) error {
	if policy == "" || key == "" {
		return fmt.Errorf("%w: Policy %q and Key %q must not be empty", ErrInvalidCall, policy, key)
	}
	return nil
}
