package denialcache

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A line is an infer.Line of a bucket that has refused a charge.
type line struct {
	infer.Line
	denied  int64 // when the refused call was sent; later, allowed calls may have renewed the line
	blocked int64 // how long after the answer the bucket is blocked; 0 if it is not
}

// of reports whether l is the line of a bucket with a short key.
func (l *line) of(policy, key string) bool { return l != nil && l.Key == key && l.Policy == policy }

// answer fills s with the State of c at now, for a bucket that is not charged. It returns short if the bucket has too few
// tokens for c, and certain if short and s are certain.
func (l *line) answer(c *store.Charge, now int64, s *store.State) (short, certain bool) {
	// The bucket answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks
	// were rounded to a microsecond.
	elapsed := now - l.Sent
	latest := elapsed + elapsed/1000 + 2
	if short = l.blocked > 0; short && latest >= l.blocked {
		return true, false
	} else if !short {
		short = l.Limit.Grants(l.At(l.Most, latest), l.Limit.Need(c.Cost), l.Limit.Debt(c.MaxWait.Microseconds()), 1) == 0
	}

	elapsed = now - l.Received
	*s = l.state(c, l.Least, elapsed)
	if s.Allowed == short {
		return short, false
	}
	return short, l.Least == l.Most || l.state(c, l.Most, elapsed) == *s
}

// state returns the State of c for a bucket that held credits at the reply, elapsed after the reply, without a charge.
func (l *line) state(c *store.Charge, credits, elapsed int64) (s store.State) {
	blocked := max(0, l.blocked-elapsed)
	c.Fill(&s, l.At(credits, elapsed), time.Duration(blocked)*time.Microsecond, false)
	return s
}
