package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// ttlLimits are limits over the whole range of rates and of bursts.
func ttlLimits(t *testing.T) (limits []store.Limit) {
	for _, l := range []struct {
		rate int64
		per  time.Duration
	}{{1, month}, {7, month}, {1, time.Hour}, {3, time.Minute}, {1, time.Second}, {7, time.Second}, {1000, time.Second}, {999_983, time.Second}, {1_000_000, time.Second}} {
		for _, burst := range []int64{1, 2, 5, 100, 800} {
			limits = append(limits, limit(t, l.rate, l.per, burst))
		}
	}
	return limits
}

func TestEveryKeyHasATTLUntilItIsFullAfterEveryCharge(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	clocks := map[string]func() time.Time{"server's clock": nil, "callers' clock": time.Now}
	for name, clock := range clocks {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 0))
			own := prefix()
			s := redisstore.New(client, redisstore.Config{Prefix: own, Clock: clock})
			limits := ttlLimits(t)
			// Buckets of one limit, and one whose limit keeps changing.
			for i := range limits {
				for _, key := range []string{fmt.Sprint("k", i), "changing"} {
					burst := limits[i].Capacity / limits[i].Unit
					for range 8 {
						c := store.Charge{Policy: "p", Key: key, Limit: limits[i], Cost: 1 + r.Int64N(burst)}
						if r.IntN(3) == 0 {
							c.MaxWait = time.Duration(r.Int64N(int64(time.Hour)))
						}
						if key == "changing" {
							c.Limit = limits[r.IntN(len(limits))]
							c.Cost = 1
						}
						before := time.Now()
						state := take(t, s, c)
						checkTTL(t, client, own+":{"+key+"}:p", c, state, before)
					}
				}
			}
		})
	}
}

func checkTTL(t *testing.T, client *redis.Client, key string, c store.Charge, state store.State, before time.Time) {
	t.Helper()
	ttl, err := client.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if ttl == -1 {
		t.Fatalf("%+v: no TTL", c)
	}
	// Without the key, or with too short a TTL, the bucket must have had the time to fill since.
	if took := time.Since(before); state.Allowed && took < state.ResetAfter && ttl < state.ResetAfter-took {
		t.Fatalf("%+v: the TTL is %v %v after the charge, and the bucket was full after %v only", c, ttl, took, state.ResetAfter)
	}
}

// A moving server is a miniredis whose clock and TTLs a test moves together.
type moving struct {
	*miniredis.Miniredis
	now time.Time
}

func newMoving(t *testing.T) (*moving, *redis.Client) {
	m := &moving{miniredis.RunT(t), time.Date(2026, 5, 23, 10, 0, 0, 0, time.UTC)}
	m.SetTime(m.now)
	return m, dial(t, m.Addr())
}

// forward moves the time and lets keys expire, to the millisecond as Redis does.
func (m *moving) forward(d time.Duration) {
	m.FastForward(d)
	m.now = m.now.Add(d)
	m.SetTime(m.now)
}

func TestNothingIsGainedWhenAKeyExpires(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 0))
	expired := 0
	steps := testsize.Of(12, 60)
	for i, l := range ttlLimits(t) {
		server, client := newMoving(t)
		s := redisstore.New(client, asking)
		model := bucket.Limit(l)
		fill := time.Duration(model.Fill()) * time.Microsecond
		if fill > 3*365*24*time.Hour {
			continue // the steps would go on for centuries
		}
		key := fmt.Sprint("k", i)
		var kept bucket.Bucket // which never forgets
		for range steps {
			// Mostly a little, so that the bucket runs dry, and sometimes beyond when the key expires.
			step := time.Duration(r.Int64N(int64(fill)/4 + 1))
			if r.IntN(4) == 0 {
				step = time.Duration(r.Int64N(3*int64(fill) + int64(5*time.Millisecond)))
			}
			server.forward(step)
			if kept != (bucket.Bucket{}) && !server.Exists("ratelimit:{"+key+"}:p") {
				expired++
			}
			c := store.Charge{Policy: "p", Key: key, Limit: l, Cost: 1 + r.Int64N(l.Capacity/l.Unit)}
			found := model.Advance(kept, server.now.UnixMicro())
			fits := model.Grants(found.Tokens, model.Need(c.Cost), 0, 1) == 1
			if fits {
				found.Tokens = model.Charge(found.Tokens, model.Need(c.Cost), 0, 1)
				kept = found
			}
			var want store.State
			c.Fill(&want, found.Tokens, 0, fits)
			if got := take(t, s, c); got != want {
				t.Fatalf("%+v: %+v, want %+v", c, got, want)
			}
		}
	}
	if expired < steps {
		t.Fatalf("only %d keys expired", expired)
	}
}

func TestAServerClockThatIsSetBackFreezesNoBucketAndGrantsNothing(t *testing.T) {
	server, client := newMoving(t)
	s := redisstore.New(client, asking)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 10, time.Second, 10), Cost: 10} // full after 1 s
	take(t, s, c)
	c.Cost = 1

	// By less than the time to full: nothing moves until the clock is back.
	server.SetTime(server.now.Add(-900 * time.Millisecond))
	if state := take(t, s, c); state.Allowed || state.RetryAfter != 100*time.Millisecond {
		t.Fatalf("set back by 900 ms: %+v", state)
	}
	server.SetTime(server.now.Add(100 * time.Millisecond))
	if state := take(t, s, c); !state.Allowed || state.Remaining != 0 {
		t.Fatalf("when the clock was back: %+v", state)
	}

	// By hours, as after a failover: the bucket refills from there.
	back := server.now.Add(-3 * time.Hour)
	server.SetTime(back)
	for range 3 {
		if state := take(t, s, c); state.Allowed || state.RetryAfter != 100*time.Millisecond {
			t.Fatalf("set back by hours: %+v", state)
		}
	}
	server.SetTime(back.Add(100*time.Millisecond - time.Microsecond))
	if state := take(t, s, c); state.Allowed {
		t.Fatalf("a microsecond early: %+v", state)
	}
	server.SetTime(back.Add(100 * time.Millisecond))
	if state := take(t, s, c); !state.Allowed || state.Remaining != 0 {
		t.Fatalf("100 ms later: %+v", state)
	}
}

// Refilling goes on only when the clock has caught up with the last refill, and the TTL must last until then.
func TestATTLOutlivesAClockThatIsSetBackALittle(t *testing.T) {
	server, client := newMoving(t)
	s := redisstore.New(client, asking)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 10, time.Second, 10), Cost: 1} // full after 1 s
	take(t, s, c)
	server.forward(1500 * time.Millisecond)
	c.Cost = 5
	take(t, s, c)
	server.now = server.now.Add(-500 * time.Millisecond)
	server.SetTime(server.now)
	take(t, s, c)
	server.forward(1002 * time.Millisecond) // of which the bucket was refilled for 502 ms
	wantLeft(t, s, 5, c)
}

// On a real server, whose clock cannot be set, the bucket is moved instead.
func TestABucketFromTheFutureIsAnchoredAnew(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := redisstore.New(client, asking)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 1, time.Minute, 1), Cost: 1}
	take(t, s, c)
	key := "ratelimit:{k}:p"
	hours := time.Now().Add(3 * time.Hour).UnixMicro()
	server.Do("HSET", key, "last_refill", hours)
	if state := take(t, s, c); state.Allowed || state.RetryAfter != time.Minute {
		t.Errorf("%+v, want a minute from now", state)
	}
	if at, err := client.HGet(t.Context(), key, "last_refill").Int64(); err != nil || at >= hours || at > time.Now().UnixMicro() {
		t.Errorf("last_refill is %d, error %v, want now", at, err)
	}
	// The TTL of another clock is not relied on by a charge that anchors a bucket anew, also if it is denied.
	if ttl := client.PTTL(t.Context(), key).Val(); ttl < time.Minute || ttl > 3*time.Minute {
		t.Errorf("the TTL is %v, want the minute that the bucket takes to fill, and as long again", ttl)
	}
	// Nor by a charge after a peek, which writes nothing.
	server.Do("HSET", key, "last_refill", hours)
	server.Do("PEXPIRE", key, 10_000)
	look(t, s, c)
	take(t, s, c)
	if ttl := client.PTTL(t.Context(), key).Val(); ttl < time.Minute {
		t.Errorf("the TTL is %v, want the minute that the bucket takes to fill", ttl)
	}
	server.Do("HSET", key, "last_refill", hours, "limit", "60000000 1 60000000", "tokens", 1_000_000*60)
	server.Do("PEXPIRE", key, 10_000)
	if state := take(t, s, c); !state.Allowed {
		t.Errorf("%+v", state)
	}
	if ttl := client.PTTL(t.Context(), key).Val(); ttl < time.Minute {
		t.Errorf("the TTL is %v, want the minute that the bucket takes to fill", ttl)
	}
	// By no more than the time to full it is not, and a callers' clock never does it.
	seconds := time.Now().Add(50 * time.Second).UnixMicro()
	server.Do("HSET", key, "last_refill", seconds)
	take(t, s, c)
	if at := client.HGet(t.Context(), key, "last_refill").Val(); at != fmt.Sprint(seconds) {
		t.Errorf("last_refill is %s, want it untouched", at)
	}
	server.Do("HSET", key, "last_refill", hours)
	take(t, redisstore.New(client, redisstore.Config{Clock: time.Now}), c)
	if at := client.HGet(t.Context(), key, "last_refill").Val(); at != fmt.Sprint(hours) {
		t.Errorf("last_refill is %s, want it untouched", at)
	}
}

func TestCallersClocksGrantNothingTwice(t *testing.T) {
	client := redistest.Start(t).Client()
	now := time.Now()
	clock := func() time.Time { return now }
	s := redisstore.New(client, redisstore.Config{Clock: clock})
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 10, time.Minute, 10), Cost: 10}
	take(t, s, c)
	c.Cost = 1
	allowed := 0
	// A replica that is an hour ahead is granted the hour's tokens once, and never again while its
	// clock and ours alternate.
	for range 50 {
		for _, ahead := range []time.Duration{0, time.Hour} {
			now = now.Add(ahead)
			if take(t, s, c).Allowed {
				allowed++
			}
			now = now.Add(-ahead)
		}
	}
	if allowed != 10 {
		t.Fatalf("%d allowed, want the 10 of one fill", allowed)
	}
}

func TestADenialAndAPeekWriteNothing(t *testing.T) {
	client := redistest.Start(t).Client()
	s := redisstore.New(client, asking)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 1, time.Hour, 1), Cost: 1}
	take(t, s, c)
	before := client.HGetAll(t.Context(), "ratelimit:{k}:p").Val()
	writes := commandCalls(t, client, "hset", "pexpire")
	for range 10 {
		take(t, s, c) // denied
		look(t, s, c)
	}
	if got := commandCalls(t, client, "hset", "pexpire"); got != writes {
		t.Errorf("%d writes by 10 denials and 10 peeks", got-writes)
	}
	if after := client.HGetAll(t.Context(), "ratelimit:{k}:p").Val(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the bucket is %v, was %v", after, before)
	}
}

func TestTheTTLIsRefreshedAtMostOncePerFillTime(t *testing.T) {
	server, client := newMoving(t)
	s := redisstore.New(client, asking)
	c := store.Charge{Policy: "p", Key: "k", Limit: limit(t, 100, time.Second, 100), Cost: 1} // full after 1 s
	key := "ratelimit:{k}:p"
	refreshes := 0
	var last time.Duration
	for range 200 { // 50 ms apart, over ten fill times
		take(t, s, c)
		if ttl := server.TTL(key); ttl > last {
			refreshes++
		}
		last = server.TTL(key)
		server.forward(50 * time.Millisecond)
		last -= 50 * time.Millisecond
	}
	if refreshes > 11 {
		t.Errorf("%d refreshes in 10 fill times", refreshes)
	}

	// And so in the number of commands that a real server runs.
	real := redistest.Start(t).Client()
	s = redisstore.New(real, redisstore.Config{})
	c.Limit = limit(t, 1000, month, 1000)
	for range 500 {
		take(t, s, c)
	}
	if n := commandCalls(t, real, "pexpire"); n != 1 {
		t.Errorf("%d PEXPIRE in 500 calls within one fill time", n)
	}
}

// A bucket in Redis can be read by a person.
func TestTheHashOfABucket(t *testing.T) {
	server, client := newMoving(t)
	s := redisstore.New(client, asking)
	take(t, s, store.Charge{Policy: "api", Key: "member:5", Limit: limit(t, 60, time.Minute, 10), Cost: 3})
	got := client.HGetAll(t.Context(), "ratelimit:{member:5}:api").Val()
	want := map[string]string{
		"tokens":      "7000000",
		"last_refill": fmt.Sprint(server.now.UnixMicro()),
		"limit":       "1000000 1 10000000",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the hash is %v, want %v", got, want)
	}
}

// On the server's own clock, which cannot be moved, so this one takes its time.
func TestRetryAfterByTheServersClock(t *testing.T) {
	t.Parallel()
	s := redisstore.New(redistest.Start(t).Client(), redisstore.Config{})
	early := 0
	for i := range 5 {
		c := store.Charge{Policy: "p", Key: fmt.Sprint("k", i), Limit: limit(t, 7, time.Second, 1), Cost: 1}
		take(t, s, c)
		begin := time.Now()
		state := take(t, s, c)
		denied := time.Now()
		time.Sleep(state.RetryAfter - 10*time.Millisecond)
		again := take(t, s, c)
		if time.Since(begin) < state.RetryAfter-time.Millisecond { // unless this process was held up
			if early++; again.Allowed {
				t.Errorf("allowed a millisecond or more before the RetryAfter of %v", state.RetryAfter)
			}
		}
		if !again.Allowed {
			time.Sleep(time.Until(denied.Add(state.RetryAfter)))
			if state := take(t, s, c); !state.Allowed {
				t.Errorf("denied after RetryAfter: %+v", state)
			}
		}
	}
	t.Logf("%d of 5 were early enough to tell", early)
}

func TestAKeyOnARealServerExpiresNoSoonerThanItIsFull(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	s := redisstore.New(client, asking)
	for burst := int64(1); burst <= 4; burst++ {
		c := store.Charge{Policy: "p", Key: fmt.Sprint("k", burst), Limit: limit(t, 20, time.Second, burst), Cost: burst}
		begin := time.Now() // before the charge, so that what passes since is at least what it measures
		state := take(t, s, c)
		until(t, "it is gone", func() bool { return client.Exists(t.Context(), "ratelimit:{"+c.Key+"}:p").Val() == 0 })
		if passed := time.Since(begin); passed < state.ResetAfter {
			t.Errorf("burst %d: gone after %v, and full after %v only", burst, passed, state.ResetAfter)
		}
	}
}
