package denialcache

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/infer"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A line is a infer.Line. It is in force while the stamp of its slot is the one it was made under.
type line struct {
	infer.Line
	stamp   uint64
	denied  int64 // when the refused call was sent that it goes back to
	blocked int64 // how long after that the bucket was blocked; 0 if it was not
}

// answer fills s with the State of c at now, for a bucket that is not charged. It reports whether the bucket has
// less than c needs, and whether all of that is certain.
func (l *line) answer(c *store.Charge, now int64, s *store.State) (short, certain bool) {
	limit := bucket.Limit(l.Limit)
	// The bucket answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks
	// were rounded to a microsecond.
	elapsed := now - l.Sent
	latest := elapsed + elapsed/1000 + 2
	if short = l.blocked > 0; short && latest >= l.blocked {
		return true, false
	} else if !short {
		short = limit.Grants(l.At(l.Most, latest), limit.Need(c.Cost), limit.Debt(c.MaxWait.Microseconds()), 1) == 0
	}

	elapsed = now - l.Received
	*s = l.state(c, l.Least, elapsed)
	if s.Allowed == short {
		return short, false
	}
	return short, l.Least == l.Most || l.state(c, l.Most, elapsed) == *s
}

// state returns the State of c that long after the reply, for a bucket that held credits then and is not charged.
func (l *line) state(c *store.Charge, credits, elapsed int64) (s store.State) {
	c.Fill(&s, l.At(credits, elapsed), false)
	if l.blocked > 0 {
		c.Shut(&s, time.Duration(l.blocked-elapsed)*time.Microsecond, false)
	}
	return s
}
