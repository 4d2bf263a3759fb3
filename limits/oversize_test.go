package limits_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/limits"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A hash that somebody has made too large changes nothing: the limits in force stay, and the page says why. A value that
// is too long concerns one policy only, and can be replaced.
func TestTooMuchWrittenByHand(t *testing.T) {
	fields, long := testsize.Of(10_000, 100_000), testsize.Of(5<<20, 50<<20)
	server := redistest.Start(t)
	quiet := slog.New(slog.DiscardHandler)
	buckets := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{Logger: quiet}))
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets, Policies: []ratelimit.Policy{
		policy("api", ratelimit.PerMinute(60).WithBurst(10)), policy("login", ratelimit.PerHour(5)),
	}}))
	changed, err := limits.Watch(t.Context(), l, buckets, limits.Config{Every: 20 * time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	set := func(policy, limit string) {
		t.Helper()
		if err := changed.Set(t.Context(), limits.Change{Policy: policy, Limit: limit, By: "alice"}); err != nil {
			t.Error(err)
		}
	}
	inForce := func(api, login string) {
		t.Helper()
		if now := l.Policies(); now[0].Limit.String() != api || now[1].Limit.String() != login {
			t.Errorf("in force: %v and %v, want %s and %s", now[0].Limit, now[1].Limit, api, login)
		}
	}
	set("api", "120/1m burst 20")
	set("login", "10/1h")

	server.Do("EVAL", `for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'f' .. i, 'v') end return 1`, 1, "ratelimit:limits", fields)
	testprogram.Until(t, "it is refused", func() bool {
		return strings.Contains(changed.Problem(), fmt.Sprint(fields+6, " fields: must have at most 1000"))
	})
	inForce("120/1m burst 20", "10/1h")
	if err := changed.Set(t.Context(), limits.Change{Policy: "api", Limit: "90/1m", By: "alice"}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(fields+6, " fields")) {
		t.Errorf("%v", err)
	}
	server.Do("EVAL", `for i = 1, ARGV[1] do redis.call('HDEL', KEYS[1], 'f' .. i) end return 1`, 1, "ratelimit:limits", fields)
	testprogram.Until(t, "it is read again", func() bool { return changed.Problem() == "" })
	inForce("120/1m burst 20", "10/1h")

	server.Do("HSET", "ratelimit:limits", "api", strings.Repeat("v", long))
	testprogram.Until(t, "the value is refused", func() bool {
		return changed.List()[0].Refused == fmt.Sprintf("the value has %d bytes: must have at most 1024", long)
	})
	inForce("60/1m burst 10", "10/1h")
	set("api", "240/1m burst 40")
	inForce("240/1m burst 40", "10/1h")
	server.Do("HSET", "ratelimit:limits", "api", strings.Repeat("v", long))
	testprogram.Until(t, "the value is refused", func() bool { return changed.List()[0].Refused != "" })
	if err := changed.End(t.Context(), limits.Change{Policy: "api", By: "alice"}); err != nil {
		t.Error(err)
	}
	if server.Do("HEXISTS", "ratelimit:limits", "api") != int64(0) {
		t.Error("the value is still there")
	}
}
