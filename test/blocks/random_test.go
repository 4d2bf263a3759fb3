package blocks_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Whatever else happens to its buckets, a blocked key is not served before the block ends. A denied client that comes
// again after RetryAfter is served.
func FuzzBlockedKeysAreNotServed(f *testing.F) {
	f.Add([]byte{7, 10, 0, 1, 10, 9, 0, 1, 10, 2, 0, 1})     // block, request, wait, request
	f.Add([]byte{7, 10, 0, 0, 3, 0, 6, 9, 0, 1})             // a request for nothing, and a refund
	f.Add([]byte{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0x81})     // until it locks, and then again after RetryAfter
	f.Add([]byte{7, 0x1f, 8, 0x10, 0, 1, 7, 0x1f, 9, 0x10})  // unblock and reset
	f.Add([]byte{0, 0x31, 7, 0x30, 6, 0x31, 0, 1, 11, 0x30}) // a lock and a block
	f.Fuzz(func(t *testing.T, ops []byte) { blockSequence(t, ops[:min(len(ops), 1000)]) })
}

func TestBlockedKeysAreNotServedInRandomSequences(t *testing.T) {
	var total served
	for seed := range uint64(testsize.Of(30, 300)) {
		random := rand.New(rand.NewPCG(seed, 17))
		ops := make([]byte, 600)
		for i := range ops {
			ops[i] = byte(random.Uint32())
		}
		s := blockSequence(t, ops)
		total.in, total.blocked, total.again = total.in+s.in, total.blocked+s.blocked, total.again+s.again
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if total.in < 500 || total.blocked < 500 || total.again < 250 {
		t.Errorf("the sequences show little: %+v", total)
	}
}

// served counts the requests that were served, denied during a block, and served after RetryAfter.
type served struct{ in, blocked, again int }

// blockSequence makes calls of two bytes each: what, and with which key and number.
func blockSequence(t *testing.T, ops []byte) (s served) {
	c := newClock()
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: c.Now}))
	defer buckets.Close()
	var denied *ratelimit.Decision
	l := newLimiter(t, ratelimit.Config{Store: buckets, Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		denied, _ = ratelimit.FromContext(r.Context())
		w.WriteHeader(http.StatusTooManyRequests)
	})})

	number := func(name string) func(*http.Request) int64 {
		return func(r *http.Request) int64 {
			n, _ := strconv.ParseInt(r.Header.Get(name), 10, 64)
			return n
		}
	}
	api := ratelimit.Policy{Name: "api", Key: ratelimit.Header("Client"), Limit: ratelimit.PerSecond(2).WithBurst(4), Cost: number("Cost")}
	api.LimitFunc = func(r *http.Request) ratelimit.Limit {
		if r.Header.Get("Client") == "gold" {
			return ratelimit.PerSecond(3).WithBurst(6)
		}
		return ratelimit.Limit{}
	}
	settles := number("Final")
	api.Settle = func(r *http.Request, _ ratelimit.Response) int64 { return settles(r) }
	lock := api
	lock.Name, lock.LockFor = "lock", 1500*time.Millisecond
	clients, policies := []string{"gold", "other"}, []ratelimit.Policy{api, lock}

	type bucket struct{ policy, key string }
	blocked := make(map[bucket]time.Time) // until when
	rest := func(key string) (longest time.Duration) {
		for _, p := range policies {
			longest = max(longest, blocked[bucket{p.Name, key}].Sub(c.Now()))
		}
		return longest
	}
	h := l.Limit(api, lock)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.in++
		if left := rest("header:client=" + r.Header.Get("Client")); left > 0 {
			t.Errorf("a request of %s was served %v before the end of a block", r.Header.Get("Client"), left)
		}
	}))
	request := func(client string, cost, final byte) int {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Client", client)
		r.Header.Set("Cost", fmt.Sprint(cost))
		r.Header.Set("Final", fmt.Sprint(final))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for ; len(ops) >= 2; ops = ops[2:] {
		n := ops[1]
		client, p := clients[n>>5&1], policies[n>>4&1]
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Client", client)
		key, err := p.Key(r)
		if err != nil {
			t.Fatal(err)
		}
		of, limited := bucket{p.Name, key}, p
		if client == "gold" {
			limited.Limit = api.LimitFunc(r)
		}
		left := rest(key)
		switch what := ops[0] % 13; what {
		case 0, 1, 2, 3:
			cost, final := n&3, n>>2&3
			if request(client, cost, final) == http.StatusOK {
				break
			}
			if left > 0 {
				s.blocked++
			}
			after := denied.RetryAfter()
			if after < left {
				t.Errorf("RetryAfter is %v, and the block lasts %v", after, left)
			}
			if n >= 0x80 {
				c.Advance(after)
				if code := request(client, cost, final); code != http.StatusOK {
					t.Errorf("a request of %d was answered %d after a RetryAfter of %v: %+v", cost, code, after, denied.Results)
				}
				s.again++
			}
		case 4:
			if r, err := l.Take(t.Context(), limited, key, int64(n&7)); err != nil || r.Allowed && blocked[of].After(c.Now()) {
				t.Errorf("Take: %+v, %v", r, err)
			}
		case 5:
			d, err := l.TakeAll(t.Context(), ratelimit.Charge{Policy: api, Key: key, Cost: int64(n & 3)}, ratelimit.Charge{Policy: lock, Key: key})
			if err != nil || d.Allowed && left > 0 {
				t.Errorf("TakeAll: %+v, %v", d, err)
			}
		case 6:
			if _, err := l.Refund(t.Context(), limited, key, 1+int64(n&7)); err != nil {
				t.Error(err)
			}
		case 7:
			d := time.Duration(1+n&15) * 333 * time.Millisecond
			if r, err := l.Block(t.Context(), named(p.Name), key, d, ""); err != nil || r.RetryAfter != d {
				t.Errorf("Block: %+v, %v", r, err)
			}
			blocked[of] = c.Now().Add(d)
		case 8:
			if _, err := l.Unblock(t.Context(), p, key); err != nil {
				t.Error(err)
			}
			delete(blocked, of)
		case 9:
			if _, err := l.Reset(t.Context(), p, key); err != nil {
				t.Error(err)
			}
			delete(blocked, of)
		case 10:
			c.Advance(time.Duration(n&15) * 100 * time.Millisecond)
		case 11:
			c.Advance(max(0, left-time.Microsecond))
		case 12:
			r, err := l.Peek(t.Context(), named(p.Name), key)
			left := max(0, blocked[of].Sub(c.Now()))
			if err != nil || r.RetryAfter < left || r.Blocked != (r.RetryAfter > 0) || p.LockFor == 0 && r.RetryAfter != left {
				t.Errorf("Peek: %+v, %v, and the block lasts %v", r, err, left)
			}
		}
	}
	return s
}
