package jwtkey

import (
	"testing"
	"time"
	"unsafe"

	"github.com/golang-jwt/jwt/v5"
)

// clocks returns start as it is later, when the two clocks of the machine have moved by different times.
func clocks(start time.Time, wall, monotonic time.Duration) time.Time {
	t := start.Add(wall)
	*(*time.Duration)(unsafe.Add(unsafe.Pointer(&t), unsafe.Sizeof(uint64(0)))) += monotonic - wall
	return t
}

// A clock that is set makes no token hold for longer than a minute, nor before it was verified or after its end.
func TestARememberedTokenDoesNotOutliveAClockThatIsSet(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		wall, monotonic time.Duration
		holds           bool
	}{
		"at once":                           {0, 0, true},
		"within a minute":                   {30 * time.Second, 30 * time.Second, true},
		"set back a little":                 {10 * time.Second, 30 * time.Second, true},
		"after a minute":                    {time.Minute, time.Minute, false},
		"after a minute, set back a little": {40 * time.Second, time.Minute, false},
		"after a minute, set back for ever": {0, time.Hour, false},
		"set back to before":                {-time.Nanosecond, 30 * time.Second, false},
		"set back a day":                    {-24 * time.Hour, time.Second, false},
		"set forward":                       {time.Minute, time.Second, false},
		"asleep":                            {time.Hour, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := clocks(start, c.wall, c.monotonic)
			if got := now.Sub(start); got != c.monotonic {
				t.Fatalf("the monotonic clock has moved by %v, want %v", got, c.monotonic)
			}
			if got := now.UnixNano() - start.UnixNano(); got != int64(c.wall) {
				t.Fatalf("the wall clock has moved by %v, want %v", time.Duration(got), c.wall)
			}
			cache := newTokenCache(1)
			d := digestOf("token")
			cache.put(d, jwt.MapClaims{"exp": float64(start.Add(time.Hour).Unix())}, start, start)
			if _, ok := cache.get(d, now); ok != c.holds {
				t.Errorf("remembered: %t, want %t", ok, c.holds)
			}
		})
	}
}
