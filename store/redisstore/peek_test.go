package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestInspectByTheServersClockWritesNothing(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	c := costs(charge(t, "k"), 30)
	take(t, s, c)
	key := "ratelimit:{k}:p"
	before, ends := client.Dump(t.Context(), key).Val(), client.PExpireTime(t.Context(), key).Val()
	for range 3 {
		b, err := s.Inspect(t.Context(), "p", "k")
		if err != nil || b.Limit != c.Limit || !b.Used() || b.State(c.Limit).Remaining != 70 || b.Age < 0 || b.Age > time.Minute {
			t.Errorf("%+v, %v", b, err)
		}
		server.Do("SCRIPT", "FLUSH")
	}
	if after := client.Dump(t.Context(), key).Val(); after != before || client.PExpireTime(t.Context(), key).Val() != ends {
		t.Error("the bucket was written, or its TTL changed")
	}

	// The clock was set back since.
	server.Do("HSET", key, "last_refill", time.Now().Add(1000*time.Hour).UnixMicro())
	for range 2 {
		b, err := s.Inspect(t.Context(), "p", "k")
		if err != nil || b.Limit != c.Limit || b.State(c.Limit).Remaining != 70 {
			t.Errorf("%+v, %v", b, err)
		}
		other := c
		other.Cost, other.Limit = 0, limit(t, 1, time.Minute, 10)
		take(t, s, other)
	}
}

func TestInspectOfAKeyThatHoldsNoBucketIsAnError(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	key := "ratelimit:{k}:p"
	server.Do("SET", key, "a string")
	if _, err := s.Inspect(t.Context(), "p", "k"); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("%v, want WRONGTYPE", err)
	}
	good := []any{"HSET", key, "tokens", "1", "last_refill", "1", "limit", "7 1 70"}
	for field, values := range map[string][]string{
		"tokens":      {"nan", "inf", "", "1.5", "many", "4503599627370497"},
		"last_refill": {"nan", "-inf", "-1", "9007199254740993"},
		"limit":       {"", "7", "7 1", "7 1 6", "7 0 70", "7 71 70", "7 1 4503599627370497", "x 1 70", "7 1 70 1", "~7 1 70", "0 1 70", "8 1 7", "blocked"},
	} {
		for _, value := range values {
			server.Do("DEL", key)
			server.Do(good...)
			server.Do("HSET", key, field, value)
			if b, err := s.Inspect(t.Context(), "p", "k"); err == nil || b != (store.Bucket{}) {
				t.Errorf("%s %q: %+v, %v, want an error", field, value, b, err)
			}
		}
		server.Do("DEL", key)
		server.Do(good...)
		server.Do("HDEL", key, field)
		if b, err := s.Inspect(t.Context(), "p", "k"); err == nil {
			t.Errorf("no %s: %+v, want an error", field, b)
		}
	}
}

func TestInspectEndsByItsContextWhateverTheClientsTimeouts(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for name, timeout := range map[string]time.Duration{"a client that can obey deadlines": 2 * time.Second, "a client that sets none": -2} {
		t.Run(name, func(t *testing.T) {
			client := server.ClientOptions(func(o *redis.Options) {
				o.Addr, o.ReadTimeout, o.MaxRetries = proxy.Addr(), timeout, 3
			})
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
			if _, err := s.Inspect(t.Context(), "p", "k"); err != nil {
				t.Fatal(err)
			}
			proxy.Delay(time.Minute)
			defer proxy.Delay(0)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, err := s.Inspect(ctx, "p", "k")
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
				t.Errorf("%v after %v, want the deadline of 50ms", err, took)
			}
			client.Close()
			s.Close()
			if _, err := s.Inspect(t.Context(), "p", "k"); !errors.Is(err, redisstore.ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		})
	}
}

func TestResetsOverSeveralSlots(t *testing.T) {
	for name, client := range map[string]redisstore.Client{"cluster": redistest.SharedCluster(t, 3).Client(), "ring": ring(t)} {
		t.Run(name, func(t *testing.T) {
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
			var used, resets []store.Charge
			for i := range 6 {
				c := charge(t, fmt.Sprint("k", i))
				resets = append(resets, costs(c, store.Reset))
				c.Limit = limit(t, 1, time.Hour, 600)
				used = append(used, c)
				take(t, s, costs(c, 600))
			}
			empty := charge(t, "empty")
			take(t, s, costs(empty, 100))
			wantRefused(t, s, append(resets, costs(empty, 100))...)
			wantLeft(t, s, 0, used...)
			takeAll(t, s, resets...)
			wantLeft(t, s, 600, used...)
		})
	}
}

func FuzzParseBucket(f *testing.F) {
	f.Add("1780000000000000", "1", "1", "7 1 70", "7 1 70", "1", true)
	f.Add("1780000000000000", "-4503599627370496", "1780000000000001", "blocked", "1000000 1 60000000", "1780000000000002", true)
	f.Add("-62135596800000000", "nan", "-1", "", "", "", false)
	f.Fuzz(func(t *testing.T, now, tokens, last, limit, beneath, until string, serverClock bool) {
		b, err := redisstore.ParseBucket([]any{now, tokens, last, limit, beneath, until, last, "a reason"}, serverClock)
		if err != nil {
			return
		}
		if b.Blocked < 0 || b.BlockedSince < 0 || b.Blocked == 0 && (b.Reason != "" || b.Locked) {
			t.Errorf("%+v", b)
		}
		c := store.Charge{Policy: "p", Key: "k", Limit: b.Limit}
		if err := store.Validate([]store.Charge{c}, make([]store.State, 1)); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
		if s := b.State(b.Limit); b.Age < 0 || s.ResetAfter < 0 || b.Used() != (s.ResetAfter > 0) {
			t.Errorf("%+v: %+v", b, s)
		}
	})
}
