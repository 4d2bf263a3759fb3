package jwtkey

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// check checks that what is free and what is remembered make up the size, and that one is in the queue
// for each that is remembered.
func (c *tokenCache) check(t *testing.T) {
	t.Helper()
	places, tokens := c.free, 0
	for _, value := range c.tokens.Range {
		places += value.(*remembered).places
		tokens++
	}
	if places != c.size || c.free < 0 || tokens != c.queue.Len() {
		t.Fatalf("%d places of %d, %d of them free; %d tokens, %d in the queue", places, c.size, c.free, tokens, c.queue.Len())
	}
}

func TestTheCacheKeepsToItsSize(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := newTokenCache(50)
	now := time.Now()
	bulky := claimsOf(t, `"a": `+nested(`{"":`, `}`, 6<<10))
	kinds := []jwt.MapClaims{claimsOf(t, `"a": 0`), claimsOf(t, `"a": `+flat(`0`, 1000)), claimsOf(t, `"a": `+nested(`{"":`, `}`, 200)), bulky}
	for range 5_000 {
		now = now.Add(time.Duration(random.IntN(3000)-500) * time.Millisecond)
		token := fmt.Sprint(random.IntN(100))
		if random.IntN(2) == 0 {
			c.get(digestOf(token), now)
			continue
		}
		c.put(digestOf(token), kinds[random.IntN(len(kinds))], now, now)
		c.check(t)
	}
	if c.queue.Len() < 5 {
		t.Errorf("only %d are remembered", c.queue.Len())
	}
}

func TestClaimsThatDoNotFitDriveOutNobody(t *testing.T) {
	c := newTokenCache(10)
	now := time.Now()
	for i := range 10 {
		c.put(digestOf(fmt.Sprint(i)), claimsOf(t, `"a": 0`), now, now)
	}
	c.put(digestOf("bulky"), claimsOf(t, `"a": `+nested(`{"":`, `}`, 6<<10)), now, now)
	if _, ok := c.get(digestOf("bulky"), now); ok || c.queue.Len() != 10 {
		t.Errorf("%d are remembered, the bulky one among them: %t", c.queue.Len(), ok)
	}
	c.check(t)
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

func TestOnePutDoesBoundedWork(t *testing.T) {
	// All of the many are in use, and then all have ended. Neither makes one put go through all of them.
	c := newTokenCache(1000)
	now := time.Now()
	claims := claimsOf(t, `"a": 0`)
	for i := range 1000 {
		token := fmt.Sprint(i)
		c.put(digestOf(token), claims, now, now)
		c.get(digestOf(token), now)
	}
	c.put(digestOf("one more"), claims, now, now)
	spared := 0
	for e := c.queue.Front(); e != nil; e = e.Next() {
		if !e.Value.(*remembered).used.Load() {
			spared++
		}
	}
	if c.queue.Len() != 1000 || spared > maxSteps+1 {
		t.Errorf("%d are remembered, %d were spared or are new", c.queue.Len(), spared)
	}
	now = now.Add(time.Hour)
	c.put(digestOf("after an hour"), claims, now, now)
	if n := c.queue.Len(); n > 1000 || n < 1000-maxSteps {
		t.Errorf("%d are remembered", n)
	}
	if _, ok := c.get(digestOf("after an hour"), now); !ok {
		t.Error("the new one is not")
	}
}
