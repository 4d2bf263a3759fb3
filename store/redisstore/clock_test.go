package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
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
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{Prefix: own, Clock: clock}))
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

// On a real server, whose clock cannot be set, the bucket is moved instead.
func TestABucketFromTheFutureIsAnchoredAnew(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := ratelimit.Must(redisstore.New(client, asking))
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
	take(t, ratelimit.Must(redisstore.New(client, redisstore.Config{Clock: time.Now})), c)
	if at := client.HGet(t.Context(), key, "last_refill").Val(); at != fmt.Sprint(hours) {
		t.Errorf("last_refill is %s, want it untouched", at)
	}
}

func TestADenialAndAPeekWriteNothing(t *testing.T) {
	client := redistest.Start(t).Client()
	s := ratelimit.Must(redisstore.New(client, asking))
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

// A bucket in Redis can be read by a person.
func TestTheHashOfABucket(t *testing.T) {
	client := redistest.Start(t).Client()
	now := time.Date(2026, 5, 23, 10, 0, 0, 0, time.UTC)
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{Clock: func() time.Time { return now }}))
	take(t, s, store.Charge{Policy: "api", Key: "member:5", Limit: limit(t, 60, time.Minute, 10), Cost: 3})
	got := client.HGetAll(t.Context(), "ratelimit:{member:5}:api").Val()
	want := map[string]string{"tokens": "7000000", "last_refill": fmt.Sprint(now.UnixMicro()), "limit": "1000000 1 10000000"}
	if !maps.Equal(got, want) {
		t.Errorf("the hash is %v, want %v", got, want)
	}
}

// On the server's own clock, which cannot be moved, so this one takes its time.
func TestRetryAfterByTheServersClock(t *testing.T) {
	t.Parallel()
	s := ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{}))
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
	s := ratelimit.Must(redisstore.New(client, asking))
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

// A charge under a quick limit does not make a key expire before the bucket is full under a slow one. Otherwise a client
// whose limit swings would find a full bucket again and again.
func TestNoChargeShortensATTL(t *testing.T) {
	client := redistest.Start(t).Client()
	quick, slow := limit(t, 5, time.Second, 5), limit(t, 1000, 24*time.Hour, 1000)
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1}))
	c := store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 900}
	take(t, s, c)
	ttl := func() time.Duration { return client.PTTL(t.Context(), "ratelimit:{k}:p").Val() }
	before := ttl()
	c.Limit, c.Cost = quick, 1
	take(t, s, c)
	take(t, s, c)
	take(t, s, owes(c, 20))
	c.Cost = -2
	take(t, s, c)
	block(t, s, "k", time.Second)
	block(t, s, "k", 0)
	take(t, s, c)
	if after := ttl(); after < before-10*time.Second {
		t.Errorf("the TTL is %v, and was %v", after, before)
	}
}
