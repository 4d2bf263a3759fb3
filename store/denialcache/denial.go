package denialcache

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A denial is what the refusal of a charge has shown of its bucket.
type denial struct {
	infer.Content
	denied  int64 // when the refused call was sent; later, allowed calls may have renewed the denial
	blocked int64 // how long after the answer the bucket is blocked; 0 if it is not
}

// of reports whether d is the denial of a bucket with a short key.
func (d *denial) of(policy, key string) bool { return d != nil && d.Key == key && d.Policy == policy }

// answer fills s with the State of c at now, for a bucket that is not charged. It returns short if the bucket has too few
// tokens for c, and certain if short and s are certain.
func (d *denial) answer(c *store.Charge, now int64, s *store.State) (short, certain bool) {
	// The bucket answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks
	// were rounded to a microsecond.
	elapsed := now - d.Sent
	latest := elapsed + elapsed/1000 + 2
	if d.Limit.IsQuota() && latest >= d.Rest { // nothing is known of the next period
		return false, false
	}
	if short = d.blocked > 0; short && latest >= d.blocked {
		return true, false
	} else if !short {
		short = d.Limit.Grants(d.At(d.Most, latest), d.Limit.Need(c.Cost), d.Limit.Debt(c.MaxWait.Microseconds()), 1) == 0
	}

	elapsed = now - d.Received
	*s = d.state(c, d.Least, elapsed)
	if s.Allowed == short {
		return short, false
	}
	return short, d.Least == d.Most || d.state(c, d.Most, elapsed) == *s
}

// state returns the State of c for a bucket that held credits at the reply, elapsed after the reply, without a charge.
func (d *denial) state(c *store.Charge, credits, elapsed int64) (s store.State) {
	blocked, rest := max(0, d.blocked-elapsed), max(0, d.Rest-elapsed)
	c.Fill(&s, d.At(credits, elapsed), time.Duration(rest)*time.Microsecond, time.Duration(blocked)*time.Microsecond, false)
	return s
}
