package store

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A Blocker is a [Store] that can block buckets. All stores and decorators of this module are Blockers. A decorator of a
// Store that is not one returns an error that wraps [errors.ErrUnsupported].
type Blocker interface {
	// Block blocks a bucket from now on, or unblocks it. A new block replaces an earlier block or lock. If degraded, only
	// a stand-in has blocked the bucket, and the block ends when the real store is back. Block returns by ctx's deadline.
	// Its errors are those of Take.
	Block(ctx context.Context, policy, key string, b Block) (degraded bool, err error)
}

// A Block is a block to be made. The zero Block ends the one that is in force.
type Block struct {
	// For is how long the bucket is blocked, rounded up to a microsecond and at most 35 years.
	For time.Duration

	// Reason is for people: the name of the operator and the reason, such as "alice: scrapes prices". It is at most
	// 200 bytes of UTF-8.
	Reason string
}

// MaxReason is the longest [Block.Reason], in bytes.
const MaxReason = 200

// MaxBlock is the longest [Block.For].
const MaxBlock = bucket.MaxWait * time.Microsecond

// SetBlock makes or ends a block in s. If s is not a [Blocker], or decorates a Store that is not one, the error wraps
// [errors.ErrUnsupported].
func SetBlock(ctx context.Context, s Store, policy, key string, b Block) (degraded bool, err error) {
	if blocker, ok := s.(Blocker); ok {
		return blocker.Block(ctx, policy, key, b)
	}
	return false, fmt.Errorf("store: %T is not a Blocker: %w", s, errors.ErrUnsupported)
}

// ValidateBlock returns an error that wraps [ErrInvalidCall] if policy or key is empty, or if b is not valid. Every
// Blocker calls it first.
func ValidateBlock(policy, key string, b Block) error {
	switch err := ValidateName(policy, key); {
	case err != nil:
		return err
	case b.For < 0 || b.For > MaxBlock:
		return fmt.Errorf("%w: For %v: must be from 0 to %v (35 years)", ErrInvalidCall, b.For, MaxBlock)
	case len(b.Reason) > MaxReason || !utf8.ValidString(b.Reason):
		return fmt.Errorf("%w: Reason of %d bytes: must be at most %d bytes of UTF-8", ErrInvalidCall, len(b.Reason), MaxReason)
	}
	return nil
}
