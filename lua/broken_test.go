package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// ways are those in which a server can be asked about a call by itself.
var ways = map[string]func(server, any, call) ([]int64, error){"take.lua": askTake, "alone": askAlone}

// isNoBucket reports whether a script has failed by err because a key holds no bucket.
func isNoBucket(err error) bool { return err != nil && err.Error() == "ERR the key holds no bucket" }

// Numbers that the script never writes are no bucket, whatever Lua makes of them, and the key is left as it is.
func TestNumbersThatAreNoBucketFailTheCallsOfTheKey(t *testing.T) {
	s := startServer(t, lua.Take, lua.TakeOne, lua.TakeQuota, lua.TakeFew)
	client := s.client
	l := newLimit(t, 3, time.Hour, 10)
	one := term{limit: l, need: l.Need(1)}
	const now int64 = 1_780_000_000_000_000
	text := fmt.Sprint(l.Unit, " ", l.Refill, " ", l.Capacity)

	none := []string{"nan", "-nan", "NaN", "inf", "-inf", "Infinity", "", " ", "many", "1e400", "-1e400", "0.5", "1.5", "1e-9", "9007199254740994", "9223372036854775808"}
	bad := map[string][]string{
		"tokens":        append(none, "4503599627370497", "-4503599627370497", "-9007199254740994"),
		"last_refill":   append(none, "99999999999999999999999999"),
		"blocked_until": append(none, "9007199254740994", "99999999999999999999", "-99999999999999999999"),
		"limit": {
			"", " ", "x", "7 1", "7 1 7 ", "0 1 7", "-1 1 7", "4503599627370497 1 7", "1.5 1 7", "99999999999999999999 1 7",
			"Blocked", "blocked ", "!1780000000000001 5 " + text, "+1780000000000001 " + text, "~" + text,
		},
		"blocked_limit": {"", "x", "blocked", "0 1 7", "4503599627370497 1 7"},
	}
	for _, serverClock := range []bool{false, true} {
		var clock any = now
		if serverClock {
			clock = ""
			bad["last_refill"] = append(bad["last_refill"], "-1", "-9007199254740992")
		}
		for field, values := range bad {
			for _, value := range values {
				client.FlushDB(t.Context())
				client.HSet(t.Context(), "bad", "tokens", 1, "last_refill", now, "limit", text, "blocked_limit", text, "blocked_until", now+1)
				client.HSet(t.Context(), "bad", field, value)
				if strings.HasPrefix(field, "blocked_") { // which are read where the bucket is blocked
					client.HSet(t.Context(), "bad", "limit", "blocked")
				}
				before := client.Dump(t.Context(), "bad").Val()

				calls := []call{
					{1, []charge{{"a", one}}},
					{1, []charge{{"bad", one}}},
					{2, []charge{{"bad", one}}},
					{1, []charge{{"a", one}, {"bad", one}}},
					{1, []charge{{"b", one}}},
				}
				keys, args := arguments(clock, calls)
				got, err := client.Eval(t.Context(), lua.Take, keys, args...).Int64Slice()
				nine := l.Capacity - l.Unit
				if want := []int64{1, nine, -1, 0, -1, 0, -1, 0, -1, 0, 1, nine}; err != nil || !slices.Equal(got, want) {
					t.Errorf("%s %q: %v, %v, want %v", field, value, got, err, want)
				}
				for _, need := range []int64{l.Need(1), 0, l.Need(-1), bucket.Reset} {
					bad := charge{"bad", term{limit: l, need: need}}
					for _, lone := range [][]charge{{bad}, {{"c", one}, bad}} {
						for name, ask := range ways {
							if _, err := ask(s, clock, call{1, lone}); !isNoBucket(err) {
								t.Errorf("%s: %s %q: a lone call that needs %d: error %v", name, field, value, need, err)
							}
						}
					}
				}
				if after := client.Dump(t.Context(), "bad").Val(); after != before || client.TTL(t.Context(), "bad").Val() != -1 {
					t.Errorf("%s %q: the key was written or given a TTL: %v", field, value, client.HGetAll(t.Context(), "bad").Val())
				}
			}
		}
	}
}

// The numbers at the ends of what the script writes are a bucket.
func TestTheOutermostNumbersAreABucket(t *testing.T) {
	s := startServer(t, lua.Take, lua.TakeOne, lua.TakeQuota, lua.TakeFew)
	client := s.client
	l := newLimit(t, 3, time.Hour, 10)
	const now int64 = 1_780_000_000_000_000
	for b, unit := range map[bucket.Bucket]int64{
		{Tokens: bucket.MaxCredits, At: now}:     1,
		{Tokens: -bucket.MaxCredits, At: now}:    bucket.MaxCredits,
		{Tokens: 0, At: 0}:                       1,
		{Tokens: 1, At: 1 << 53}:                 1,
		{Tokens: 1, At: time.Time{}.UnixMicro()}: 1, // by the clock of a test
	} {
		client.HSet(t.Context(), "k", "tokens", b.Tokens, "last_refill", b.At, "limit", fmt.Sprint(unit, " 1 1"))
		look := charge{"k", term{limit: l}}
		for _, lone := range [][]charge{{look}, {look, {"another", look.term}}} {
			for name, ask := range ways {
				got, err := ask(s, now, call{1, lone})
				if want := l.Advance(&bucket.Limit{Unit: unit, Refill: 1}, b, now).Tokens; err != nil || got[1] != want {
					t.Errorf("%s: %+v: %v, %v, want %d", name, b, got, err, want)
				}
			}
		}
	}
}
