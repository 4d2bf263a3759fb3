package jwtkey

import (
	"testing"
	"time"
	"unsafe"

	"github.com/golang-jwt/jwt/v5"
)

// The check of a token takes a while, for which its keys may be fetched. Its minute begins before that, and a clock that
// is set back to the time of the check may be before its nbf.
func TestATokenIsRememberedFromTheEndOfItsCheckForAMinuteFromTheBegin(t *testing.T) {
	before := time.Now()
	after := before.Add(5 * time.Second)
	// later returns before as it is when the machine's two clocks have moved by different times.
	later := func(wall, monotonic time.Duration) time.Time {
		t := before.Add(wall)
		*(*time.Duration)(unsafe.Add(unsafe.Pointer(&t), unsafe.Sizeof(uint64(0)))) += monotonic - wall
		if t.Sub(before) != monotonic || t.UnixNano()-before.UnixNano() != int64(wall) {
			panic("not as package time keeps its clocks")
		}
		return t
	}
	for name, c := range map[string]struct {
		now   time.Time
		holds bool
	}{
		"when the check has ended":        {after, true},
		"set back into the check":         {after.Add(-time.Nanosecond), false},
		"set back to before it":           {before.Add(-time.Hour), false},
		"within a minute of the begin":    {before.Add(time.Minute - time.Nanosecond), true},
		"a minute after the begin":        {before.Add(time.Minute), false},
		"a minute after, set back":        {later(30*time.Second, time.Minute), false},
		"a minute after, asleep":          {later(time.Minute, 30*time.Second), false},
		"a minute after, by a wall clock": {before.Add(time.Minute).Round(0), false},
		"set back, by a wall clock":       {after.Add(-time.Nanosecond).Round(0), false},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newTokenCache(1)
			d := digestOf("token")
			cache.put(d, jwt.MapClaims{"exp": float64(before.Add(time.Hour).Unix())}, before, after)
			if _, ok := cache.get(d, c.now); ok != c.holds {
				t.Errorf("remembered: %t, want %t", ok, c.holds)
			}
		})
	}
}
