package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A key that holds no bucket fails the call that it is for, with an error that says so, by whichever script it is
// charged and wherever that meets it.
func TestTheErrorOfAKeyThatHoldsNoBucketSaysSo(t *testing.T) {
	client := redistest.Start(t).ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	now := time.Now().UnixMicro()
	for name, fields := range map[string][]any{
		"tokens that are no number": {"tokens", "many", "last_refill", now},
		"tokens without a time":     {"tokens", "1"},
		"no limit":                  {"tokens", "1", "last_refill", now},
		"a block without a limit":   {"tokens", "1", "last_refill", now, "limit", "locked", "blocked_until", now},
		"a time out of range":       {"tokens", "1", "last_refill", "-1", "limit", "1 1 1"},
	} {
		client.FlushAll(t.Context())
		client.HSet(t.Context(), "ratelimit:{k}:bad", fields...)
		before := client.Dump(t.Context(), "ratelimit:{k}:bad").Val()
		for count := 1; count <= 4; count++ { // of charges: each script is for some
			var charges []store.Charge
			for _, policy := range []string{"a", "b", "c"}[:count-1] {
				charges = append(charges, store.Charge{Policy: policy, Key: "k", Limit: limit(t, 1, time.Second, 5), Cost: 1})
			}
			charges = append(charges, store.Charge{Policy: "bad", Key: "k", Limit: limit(t, 1, time.Second, 5), Cost: 1})
			_, err := tryFor(patient, s, charges...)
			if err == nil || !strings.HasPrefix(err.Error(), "redisstore: ") || !strings.HasSuffix(err.Error(), "key holds no bucket") {
				t.Errorf("%s, %d charges: error %v", name, count, err)
			}
		}
		if after := client.Dump(t.Context(), "ratelimit:{k}:bad").Val(); after != before || client.Exists(t.Context(), "ratelimit:{k}:a").Val() != 0 {
			t.Errorf("%s: a call that failed has written something", name)
		}
	}
}
