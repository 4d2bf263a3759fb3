package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// Reset is the Cost of a charge that removes the bucket, so that it is full under any limit.
const Reset int64 = math.MinInt64

// An Inspector is a Store that reports what it keeps of a bucket. All stores and decorators of this module are
// Inspectors. A decorator of a Store that is not one returns an error that wraps [errors.ErrUnsupported].
type Inspector interface {
	// Inspect returns what is kept of a bucket, and changes nothing. The zero Bucket means that nothing is kept.
	// It returns by ctx's deadline, and its errors are those of Take.
	Inspect(ctx context.Context, policy, key string) (Bucket, error)
}

// A Bucket is what a Store keeps of a bucket. The zero Bucket was never charged, or has refilled and was forgotten.
//
// At a limit of 1 per second with a burst of 5, a bucket that was full and was charged 3 two seconds ago is
//
//	Bucket{Limit: limit, Credits: 2_000_000, Age: 2 * time.Second}
//
// because a token is worth 1,000,000 credits at that limit. Its State is
//
//	State{Allowed: true, Remaining: 4, ResetAfter: 1 * time.Second}
type Bucket struct {
	// Limit is the limit that the bucket was last charged under. It is zero if nothing is kept.
	Limit Limit

	// Credits is what the bucket held after the last charge, in credits of Limit; below zero in debt.
	Credits int64

	// Age is the time since the last charge, in which the bucket has refilled. It counts in whole microseconds.
	Age time.Duration

	// Degraded says that a stand-in answered, as in State. Limit may then be a part of the limit.
	Degraded bool
}

// Used reports whether the bucket was charged and has not refilled since.
func (b Bucket) Used() bool { return b.Limit != Limit{} && b.credits(b.Limit) < b.Limit.Capacity }

// State returns what a Take with a Cost of 0 under l would find. Under another limit than b.Limit, the tokens carry
// over as Charge.Limit describes.
func (b Bucket) State(l Limit) State {
	c := Charge{Limit: l}
	s := c.State(b.credits(l), true)
	s.Degraded = b.Degraded
	return s
}

// credits returns what b holds now under l.
func (b Bucket) credits(l Limit) int64 {
	if b.Limit == (Limit{}) {
		return l.Capacity
	}
	kept := bucket.Bucket{Tokens: b.Credits, Unit: b.Limit.Unit}
	return bucket.Limit(l).Advance(kept, b.Age.Microseconds()).Tokens
}

// Inspect returns what s keeps of a bucket. If s is no Inspector, or decorates a Store that is not one, the error
// wraps [errors.ErrUnsupported].
func Inspect(ctx context.Context, s Store, policy, key string) (Bucket, error) {
	if i, ok := s.(Inspector); ok {
		return i.Inspect(ctx, policy, key)
	}
	return Bucket{}, fmt.Errorf("store: %T is no Inspector: %w", s, errors.ErrUnsupported)
}

// ValidateName reports an empty policy or key, as an error that wraps ErrInvalidCall. Every Inspector calls it first.
func ValidateName(policy, key string) error {
	if policy == "" || key == "" {
		return fmt.Errorf("%w: Policy %q and Key %q must not be empty", ErrInvalidCall, policy, key)
	}
	return nil
}
