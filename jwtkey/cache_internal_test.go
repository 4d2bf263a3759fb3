package jwtkey

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/golang-jwt/jwt/v5"
)

// claimsOf returns claims as a token's are read, with those of more, which is like `"a": 1`.
func claimsOf(t *testing.T, more string) jwt.MapClaims {
	t.Helper()
	claims := jwt.MapClaims{}
	decoder := json.NewDecoder(strings.NewReader(`{"exp": 9999999999, ` + more + `}`))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// nested returns JSON of that many bytes or a little more, one value within the other.
func nested(open, end string, bytes int) string {
	n := bytes / (len(open) + len(end))
	return strings.Repeat(open, n) + "0" + strings.Repeat(end, n)
}

// flat returns a list of values in that many bytes or a little less.
func flat(value string, bytes int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(value+",", bytes/(len(value)+1)), ",") + "]"
}

// names returns an object of n entries.
func names(n int, value string) string {
	var entries []string
	for i := range n {
		entries = append(entries, fmt.Sprintf(`"%x": %s`, i, value))
	}
	return "{" + strings.Join(entries, ",") + "}"
}

// heapOf returns the memory in bytes that claims take, by that of some copies.
func heapOf(t *testing.T, more string, copies int) int {
	t.Helper()
	var before, after runtime.MemStats
	all := make([]jwt.MapClaims, copies)
	runtime.GC()
	runtime.GC() // the second empties the pools
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = claimsOf(t, more)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	return (int(after.HeapAlloc) - int(before.HeapAlloc)) / copies
}

func TestClaimsAreNotHeavierThanTheyAreWeighed(t *testing.T) {
	const size = 6 << 10
	for name, claim := range map[string]string{
		"A number":                `5`,
		"Text":                    `"` + strings.Repeat("a", size) + `"`,
		"Short texts":             flat(`"a"`, size),
		"Numbers":                 flat(`0`, size),
		"Nulls":                   flat(`null`, size),
		"Empty lists":             flat(`[]`, size),
		"Lists of one":            flat(`[0]`, size),
		"Empty maps":              flat(`{}`, size),
		"Maps of one":             flat(`{"":0}`, size),
		"Lists in lists":          nested(`[`, `]`, size),
		"Maps in maps":            nested(`{"":`, `}`, size),
		"A map of 8":              names(8, `""`),
		"A map of 9":              names(9, `""`),
		"A map of 15":             names(15, `0`),
		"A map of 113":            names(113, `0`),
		"A map of 300":            names(300, `true`),
		"A map of 900":            names(900, `0`),
		"Lists of maps of a list": nested(`[{"a":[`, `]}]`, size),
	} {
		t.Run(name, func(t *testing.T) {
			weight, heap := weigh(map[string]any(claimsOf(t, `"a": `+claim))), 0
			for range 10 { // what the rest of the process does meanwhile is measured, too
				heap = heapOf(t, `"a": `+claim, 1<<20/weight+1)
				if heap <= weight && weight <= 4*heap+500 {
					return
				}
			}
			t.Errorf("%d bytes are weighed as %d", heap, weight)
		})
	}
}

func TestTheCacheKeepsToItsSize(t *testing.T) {
	c := newTokenCache(10)
	now := time.Now()
	small, bulky := claimsOf(t, `"a": 0`), claimsOf(t, `"a": `+nested(`{"":`, `}`, 6<<10))
	for i := range 15 {
		c.put(digestOf(fmt.Sprint(i)), small, now, now)
		c.get(digestOf("0"), now) // in use, so it stays
	}
	c.put(digestOf("bulky"), bulky, now, now)
	for token, want := range map[string]bool{"bulky": false, "0": true, "1": false, "5": false, "6": true, "14": true} {
		if _, ok := c.get(digestOf(token), now); ok != want {
			t.Errorf("%s is remembered: %t", token, ok)
		}
	}
	if got := c.stats(); got.Entries != 10 || got.Max != 10 || got.Evicted != 5 {
		t.Errorf("%+v", got)
	}
}

// clocks returns start as it is later, when the two clocks of the machine have moved by different times.
func clocks(start time.Time, wall, monotonic time.Duration) time.Time {
	t := start.Add(wall)
	*(*time.Duration)(unsafe.Add(unsafe.Pointer(&t), unsafe.Sizeof(uint64(0)))) += monotonic - wall
	if t.Sub(start) != monotonic || t.UnixNano()-start.UnixNano() != int64(wall) {
		panic("not as package time keeps its clocks")
	}
	return t
}

// The check of a token takes a while, for which its keys may be fetched. Its minute begins before that, and a clock that
// is set back to the time of the check may be before its nbf. A clock that is set makes no token hold for longer.
func TestATokenIsRememberedFromTheEndOfItsCheckForAMinuteFromTheBegin(t *testing.T) {
	const check, day = 5 * time.Second, 24 * time.Hour
	begin := time.Now()
	byBoth := func(d time.Duration) time.Time { return begin.Add(d) }
	byWall := func(d time.Duration) time.Time { return begin.Add(d).Round(0) } // without the clock that only runs forward
	for name, c := range map[string]struct {
		now   time.Time
		holds bool
	}{
		"when the check has ended":               {byBoth(check), true},
		"set back into the check":                {byBoth(check - 1), false},
		"set back to before it":                  {byBoth(-time.Hour), false},
		"within a minute of the begin":           {byBoth(time.Minute - 1), true},
		"a minute after the begin":               {byBoth(time.Minute), false},
		"within a minute, set back a little":     {clocks(begin, 10*time.Second, 30*time.Second), true},
		"within a minute, set back to the check": {clocks(begin, check-1, 30*time.Second), false},
		"within a minute, set back to before":    {clocks(begin, -1, 30*time.Second), false},
		"within a minute, set back a day":        {clocks(begin, -day, 6*time.Second), false},
		"a minute after, set back":               {clocks(begin, 30*time.Second, time.Minute), false},
		"an hour after, set back for ever":       {clocks(begin, check, time.Hour), false},
		"set forward, or asleep":                 {clocks(begin, time.Minute, 30*time.Second), false},
		"asleep for an hour":                     {clocks(begin, time.Hour, 6*time.Second), false},
		"by a wall clock, set back to before":    {byWall(-time.Hour), false},
		"by a wall clock, set back to the begin": {byWall(0), false},
		"by a wall clock, set back to the check": {byWall(check - 1), false},
		"by a wall clock, when the check ended":  {byWall(check), true},
		"by a wall clock, within a minute":       {byWall(time.Minute - 1), true},
		"by a wall clock, after a minute":        {byWall(time.Minute), false},
		"by a wall clock, after a year":          {byWall(365 * day), false},
	} {
		cache := newTokenCache(1)
		d := digestOf("token")
		cache.put(d, jwt.MapClaims{"exp": float64(begin.Add(366 * day).Unix())}, begin, begin.Add(check))
		if _, ok := cache.get(d, c.now); ok != c.holds {
			t.Errorf("%s: remembered: %t, want %t", name, ok, c.holds)
		}
	}
}
