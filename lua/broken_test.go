package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// A key that holds no bucket fails the calls that it could have vetoed, and no others.
func TestAKeyThatHoldsNoBucketFailsItsCallsOnly(t *testing.T) {
	client := redistest.Start(t).Client()
	l, err := bucket.NewLimit(1, time.Hour, 10)
	if err != nil {
		t.Fatal(err)
	}
	one := term{limit: l, need: l.Need(1)}
	shadow := one
	shadow.shadow = true
	const now = 1_780_000_000_000_000
	left := func(n int64) string { return fmt.Sprint(n * l.Unit) }

	for name, spoil := range map[string]func(){
		"a string":        func() { client.Set(t.Context(), "bad", "text", 0) },
		"a list":          func() { client.LPush(t.Context(), "bad", "text") },
		"garbage":         func() { client.HSet(t.Context(), "bad", "tokens", "many", "last_refill", now) },
		"half a bucket":   func() { client.HSet(t.Context(), "bad", "tokens", 1) },
		"a unit of words": func() { client.HSet(t.Context(), "bad", "tokens", 1, "last_refill", now, "unit", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			client.FlushDB(t.Context())
			spoil()
			calls := []call{
				{1, []charge{{"a", one}}},
				{1, []charge{{"bad", one}}},
				{1, []charge{{"b", one}}},
				{3, []charge{{"bad", one}}},
				{2, []charge{{"a", one}, {"bad", one}, {"b", one}}},
				{2, []charge{{"a", one}, {"bad", shadow}}},
				{1, []charge{{"b", one}}},
			}
			keys, args := arguments(now, calls)
			got, err := client.Eval(t.Context(), lua.Take, keys, args...).Int64Slice()
			if err != nil {
				t.Fatal(err)
			}
			want := "[1 " + left(9) + " -1 0 1 " + left(9) + " -1 0 -1 0 -1 0 -1 0 2 " + left(7) + " -1 0 1 " + left(8) + "]"
			if fmt.Sprint(got) != want {
				t.Errorf("got  %v\nwant %s", got, want)
			}

			for _, lone := range [][]charge{{{"bad", one}}, {{"a", one}, {"bad", one}}} {
				keys, args := arguments(now, []call{{1, lone}})
				if err := client.Eval(t.Context(), lua.Take, keys, args...).Err(); err == nil || err == redis.Nil {
					t.Errorf("a lone call of %d charges: error %v", len(lone), err)
				}
			}
			if tokens := client.HGet(t.Context(), "a", "tokens").Val(); tokens != left(7) {
				t.Errorf("a failed call left %s in the other bucket, want %s", tokens, left(7))
			}
		})
	}
}
