package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// parseBucket reads the reply of peek.lua. It returns an error for a bucket that no script can have written.
func parseBucket(reply []any, serverClock bool) (b store.Bucket, err error) {
	if len(reply) != 10 {
		return b, fmt.Errorf("redisstore: reply of %d values to a peek, want 10", len(reply))
	}
	now, ok := integer(reply[0], minTime, maxTime)
	if !ok {
		return b, fmt.Errorf("redisstore: reply with the time %v", reply[0])
	}
	earliest := minTime
	if serverClock {
		earliest = 0
	}
	limit := reply[3]
	if limit == "blocked" || limit == "locked" {
		until, untilOK := integer(reply[5], minTime, maxTime)
		since, sinceOK := integer(reply[6], minTime, maxTime)
		if !untilOK || !sinceOK {
			return store.Bucket{}, errNoBucket
		}
		if left := (bucket.Block{Until: until}).Left(now); left > 0 {
			b.Blocked, b.Locked = microseconds(left), limit == "locked"
			b.BlockedSince = bucket.Age(since, now)
			b.Reason, _ = reply[7].(string)
		}
		limit = reply[4]
	}
	if reply[1] == nil && reply[2] == nil && limit == nil {
		return b, nil
	}
	if l, isQuota := parseQuota(limit); isQuota {
		used, usedOK := integer(reply[8], 0, 2*bucket.MaxCredits)
		until, untilOK := integer(reply[9], minTime, maxTime)
		if !usedOK || !untilOK {
			return store.Bucket{}, errNoBucket
		}
		b.Limit, b.Credits, b.Rest = l, l.Capacity-used, microseconds(until-now)
		return b, nil
	}
	if l, isSlots := parseConcurrency(limit); isSlots {
		free, ok := integer(reply[1], -bucket.MaxCredits, l.Capacity)
		if !ok {
			return store.Bucket{}, errNoBucket
		}
		b.Limit, b.Credits = l, free
		return b, nil
	}
	tokens, tokensOK := integer(reply[1], -bucket.MaxCredits, bucket.MaxCredits)
	last, lastOK := integer(reply[2], earliest, maxTime)
	l, limitOK := parseLimit(limit)
	if !tokensOK || !lastOK || !limitOK {
		return store.Bucket{}, errNoBucket
	}
	b.Limit, b.Credits, b.Age = l, tokens, bucket.Age(last, now)
	return b, nil
}

// The bounds of times in microseconds, as in take.lua.
const (
	minTime int64 = -1 << 56
	maxTime int64 = 1 << 53
)

// parseQuota reads the field limit or blocked_limit of a quota, such as "100000 per month Europe/Berlin".
func parseQuota(field any) (l store.Limit, ok bool) {
	text, _ := field.(string)
	count, rest, found := strings.Cut(text, " per ")
	unit, zone, _ := strings.Cut(rest, " ")
	n, countOK := integer(count, 1, bucket.MaxCredits)
	if !found || !countOK {
		return l, false
	}
	p, err := bucket.ParsePeriod(unit, zone)
	if err != nil {
		return l, false
	}
	l, err = store.NewQuota(n, p)
	return l, err == nil
}

// parseConcurrency reads the field limit or blocked_limit of slots, such as "3 at once".
func parseConcurrency(field any) (l store.Limit, ok bool) {
	text, _ := field.(string)
	count, ok := strings.CutSuffix(text, " at once")
	n, countOK := integer(count, 1, bucket.MaxSlots)
	if !ok || !countOK {
		return l, false
	}
	l, err := store.NewConcurrency(n)
	return l, err == nil
}

// parseLimit reads a field limit or blocked_limit.
func parseLimit(field any) (store.Limit, bool) {
	text, _ := field.(string)
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return store.Limit{}, false
	}
	unit, unitOK := integer(parts[0], 1, bucket.MaxCredits)
	refill, refillOK := integer(parts[1], 1, bucket.MaxCredits)
	capacity, capacityOK := integer(parts[2], 1, bucket.MaxCredits)
	fits := unit <= capacity && refill <= capacity
	return store.Limit{Unit: unit, Refill: refill, Capacity: capacity}, unitOK && refillOK && capacityOK && fits
}

func integer(field any, least, most int64) (int64, bool) {
	text, _ := field.(string)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && least <= n && n <= most
}
