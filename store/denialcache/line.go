package denialcache

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/held"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A line is a held.Line. It is in force while the stamp of its slot is the one it was made under.
type line struct {
	held.Line
	stamp  uint64
	denied int64 // when the refused call was sent that it goes back to
}

// answer fills s with the State of c at now, for a bucket that is not charged. It reports whether the bucket has
// less than c needs, and whether all of that is certain.
func (l *line) answer(c *store.Charge, now int64, s *store.State) (short, certain bool) {
	limit := bucket.Limit(l.Limit)
	// The bucket answered when the call was sent or later. Its clock may run faster by up to 0.1 %, and both clocks
	// were rounded to a microsecond.
	elapsed := now - l.Sent
	most := l.At(l.Most, elapsed+elapsed/1000+2)
	short = limit.Grants(most, limit.Need(c.Cost), limit.Debt(c.MaxWait.Microseconds()), 1) == 0

	elapsed = now - l.Received
	*s = c.State(l.At(l.Least, elapsed), false)
	if s.Allowed == short {
		return short, false
	}
	return short, l.Least == l.Most || c.State(l.At(l.Most, elapsed), false) == *s
}
