package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/store"
)

// parseBucket reads the reply of peek.lua. It returns an error for a bucket that take.lua cannot have written.
func parseBucket(reply []any, serverClock bool) (store.Bucket, error) {
	if len(reply) != 5 {
		return store.Bucket{}, fmt.Errorf("redisstore: reply of %d values to a peek, want 5", len(reply))
	}
	now, ok := integer(reply[0], minTime, maxTime)
	if !ok {
		return store.Bucket{}, fmt.Errorf("redisstore: reply with the time %v", reply[0])
	}
	if reply[1] == nil && reply[2] == nil && reply[3] == nil && reply[4] == nil {
		return store.Bucket{}, nil
	}
	earliest := minTime
	if serverClock {
		earliest = 0
	}
	tokens, tokensOK := integer(reply[1], -bucket.MaxCredits, bucket.MaxCredits)
	unit, unitOK := integer(reply[2], 1, bucket.MaxCredits)
	last, lastOK := integer(reply[3], earliest, maxTime)
	field, _ := reply[4].(string)
	field, shut, shutOK := parseMark(field)
	limit, limitOK := parseLimit(field)
	if !tokensOK || !unitOK || !lastOK || !shutOK || !limitOK || limit.Unit != unit {
		return store.Bucket{}, errNoBucket
	}
	kept := bucket.Bucket{Tokens: tokens, Unit: unit, LastRefill: last}
	if serverClock {
		shut = shut.Reanchor(now)
	}
	left := shut.Left(now)
	return store.Bucket{Limit: limit, Credits: tokens, Age: kept.Age(now), Blocked: microseconds(left), Locked: left > 0 && shut.Lock}, nil
}

// parseMark cuts the mark of a block from the field limit of a bucket. Without a mark, shut is zero.
func parseMark(field string) (limit string, shut bucket.Shut, ok bool) {
	if !strings.HasPrefix(field, "!") && !strings.HasPrefix(field, "?") {
		return field, shut, true
	}
	parts := strings.SplitN(field[1:], " ", 3)
	if len(parts) != 3 {
		return "", shut, false
	}
	until, untilOK := integer(parts[0], minTime, maxTime)
	span, spanOK := integer(parts[1], 0, bucket.MaxWait)
	return parts[2], bucket.Shut{Until: until, For: span, Lock: field[0] == '?'}, untilOK && spanOK
}

// The bounds of times in microseconds, as in take.lua.
const (
	minTime int64 = -1 << 56
	maxTime int64 = 1 << 53
)

// parseLimit reads the unit, the refill and the capacity from the field limit of a bucket.
func parseLimit(text string) (store.Limit, bool) {
	text = strings.TrimPrefix(text, "~")
	if strings.HasPrefix(text, "+") { // the mark of a hold, which only the scripts need
		hold, rest, _ := strings.Cut(text[1:], " ")
		if _, ok := integer(hold, minTime, maxTime); !ok {
			return store.Limit{}, false
		}
		text = rest
	}
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
