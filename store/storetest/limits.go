package storetest

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

const month = 30 * 24 * time.Hour

// slowToFill are limits from 1 a month to 10^6 a second that take from ten minutes to decades to fill. A store may
// let a bucket expire by a clock that the test does not move. These buckets do not expire in that time.
func slowToFill(r *rig) []store.Limit {
	return []store.Limit{
		r.limit(1, month, 1),
		r.limit(1, month, 100),
		r.limit(31, month, 500),
		r.limit(10_007, month, 10_007), // too fine for 53 bits: approximated
		r.limit(5, 24*time.Hour, 7),
		r.limit(3, time.Hour, 2),
		r.limit(60, time.Minute, 600),
		r.limit(1, time.Second, 600),
		r.limit(3, time.Second, 2_000),
		r.limit(7, time.Second, 5_000),
		r.limit(333, time.Second, 200_000),
		r.limit(999_983, time.Second, 600_000_000),
		r.limit(1_000_000, time.Second, 1_000_000_000),
		r.limit(1, 1500*time.Nanosecond, 400_000_000),
	}
}

// quickToFill are limits that take from half a millisecond to some seconds to fill.
func quickToFill(r *rig) []store.Limit {
	return []store.Limit{
		r.limit(1, time.Millisecond, 3),
		r.limit(2_000, time.Second, 1),
		r.limit(7, 10*time.Millisecond, 20),
		r.limit(100, time.Second, 5),
		r.limit(1_000, time.Second, 100),
		r.limit(10, time.Second, 10),
		r.limit(3, time.Second, 10),
		r.limit(999_983, time.Second, 100_000),
	}
}
