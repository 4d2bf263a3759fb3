package jwtkey

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

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

func TestAClockThatIsSetBackIsNotBelieved(t *testing.T) {
	// Without a reading of the clock that only runs forward, the other stands for it.
	verified := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	c := newTokenCache(10)
	c.put(digestOf("token"), claimsOf(t, `"a": 0`), verified, verified.Add(time.Millisecond))
	for after, want := range map[time.Duration]bool{
		-time.Hour:           false,
		0:                    false, // it might not have begun yet
		time.Millisecond:     true,
		time.Minute - 1:      true,
		time.Minute:          false,
		365 * 24 * time.Hour: false,
	} {
		if _, ok := c.get(digestOf("token"), verified.Add(after)); ok != want {
			t.Errorf("after %v: remembered %t", after, ok)
		}
	}
}
