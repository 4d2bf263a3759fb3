package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/limits"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestSwapLimit(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"Redis":     func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client() },
		"miniredis": func(t *testing.T) redis.UniversalClient { return dial(t, miniredis.RunT(t).Addr()) },
		"Cluster":   func(t *testing.T) redis.UniversalClient { return redistest.SharedCluster(t, 3).Client() },
	} {
		t.Run(name, func(t *testing.T) {
			client := start(t)
			now := time.UnixMicro(1_795_367_301_000_007) // microseconds with zeros before them
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{Prefix: "swap", Clock: func() time.Time { return now }}))
			if held, err := s.LoadLimits(t.Context()); err != nil || len(held) != 0 {
				t.Fatalf("%v, %v", held, err)
			}
			const first = `1795367301000007 {"limit":"1/1s"}`
			for _, step := range []struct{ was, now, want string }{
				{"x", "y", ""},                     // nothing is kept
				{"", `{"limit":"1/1s"}`, first},    // the first one
				{"", `{"limit":"2/1s"}`, first},    // too late
				{"9 x", `{"limit":"2/1s"}`, first}, // another one was there
				{first, `2`, "1795367301000007 2"},
				{"1795367301000007 2", "", ""},
				{"1795367301000007 2", "3", ""}, // has ended
			} {
				if held, err := s.SwapLimit(t.Context(), "api", step.was, step.now, "entry "+step.now); err != nil || held != step.want {
					t.Errorf("%q to %q: %q, %v, want %q", step.was, step.now, held, err, step.want)
				}
			}
			held, err := s.LoadLimits(t.Context())
			if err != nil || fmt.Sprint(held) != `map[#0:1795367301000007 entry {"limit":"1/1s"} #1:1795367301000007 entry 2 #2:1795367301000007 entry  #n:3 #since:1795367301000007]` {
				t.Errorf("%v, %v", held, err)
			}
			if ttl := client.TTL(t.Context(), "swap:limits").Val(); ttl != -1 {
				t.Errorf("TTL %v", ttl)
			}
			for i := range 60 { // the log is a ring
				if _, err := s.SwapLimit(t.Context(), "b"+strconv.Itoa(i), "", "v", "of "+strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
			}
			held, err = s.LoadLimits(t.Context())
			if err != nil || len(held) != 60+52 || held["#n"] != "63" || held["#12"] != "1795367301000007 of 59" || held["#13"] != "1795367301000007 of 10" {
				t.Errorf("%d fields: %v, %v", len(held), held, err)
			}
			client.HSet(t.Context(), "swap:limits", "#n", "4503599627370495") // has no exponent afterwards
			if _, err := s.SwapLimit(t.Context(), "many", "", "v", "of many"); err != nil {
				t.Fatal(err)
			}
			held, err = s.LoadLimits(t.Context())
			if err != nil || len(held) != 61+52 || held["#n"] != "4503599627370496" || held["#45"] != "1795367301000007 of many" {
				t.Errorf("%d fields: %v, %v", len(held), held, err)
			}
			client.HSet(t.Context(), "swap:limits", "blank", "") // by hand
			if held, err := s.SwapLimit(t.Context(), "blank", "", "", "end"); err != nil || held != "" || client.HExists(t.Context(), "swap:limits", "blank").Val() {
				t.Errorf("an empty value: %q, %v", held, err)
			}
			for i, garbage := range []string{"x", "-1", "1.5", "1e300", "-1e300", "1e400", "inf", "-inf", "nan", "0x10", "9007199254740993", ""} {
				client.HSet(t.Context(), "swap:limits", "#n", garbage)
				for _, entry := range []string{"one", "two"} { // the log goes on from there
					entry += strconv.Itoa(i)
					held, err := s.SwapLimit(t.Context(), "c"+entry, "", "v", entry)
					if err != nil || held != "1795367301000007 v" {
						t.Errorf("%q: %q, %v", garbage, held, err)
					}
					n, err := strconv.ParseInt(client.HGet(t.Context(), "swap:limits", "#n").Val(), 10, 64)
					logged := client.HGet(t.Context(), "swap:limits", "#"+strconv.FormatInt((n-1)%50, 10)).Val()
					if err != nil || n < 1 || logged != "1795367301000007 "+entry {
						t.Errorf("%q: %d changes, %v, and the last is %q", garbage, n, err, logged)
					}
				}
			}
			client.Del(t.Context(), "swap:limits")
			client.Set(t.Context(), "swap:limits", "a string", 0)
			if _, err := s.LoadLimits(t.Context()); !redis.HasErrorPrefix(err, "WRONGTYPE") {
				t.Errorf("%v", err)
			}
			if _, err := s.SwapLimit(t.Context(), "api", "", "v", "e"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%v", err)
			}
			s.Close()
			if _, err := s.LoadLimits(t.Context()); !errors.Is(err, redisstore.ErrClosed) {
				t.Errorf("%v", err)
			}
			if _, err := s.SwapLimit(t.Context(), "api", "", "v", "e"); !errors.Is(err, redisstore.ErrClosed) {
				t.Errorf("%v", err)
			}
		})
	}
}

// By the server's clock, the time has all its digits.
func TestSwapLimitByTheServersClock(t *testing.T) {
	s := ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{}))
	held, err := s.SwapLimit(t.Context(), "api", "", "v", "e")
	at, value, _ := strings.Cut(held, " ")
	µs, _ := strconv.ParseInt(at, 10, 64)
	if since := time.Since(time.UnixMicro(µs)); err != nil || value != "v" || len(at) != 16 || since < -time.Second || since > time.Minute {
		t.Errorf("%q, %v", held, err)
	}
}

// The rights that the guide lists are enough, and without one of them the error names it.
func TestRightsForLimits(t *testing.T) {
	server := redistest.Start(t)
	if !server.HasACL() {
		return
	}
	s := ratelimit.Must(redisstore.New(limiter(server, guideACL(t)...), redisstore.Config{}))
	rights := []any{"+hlen", "+hkeys", "+hstrlen", "+hdel"}
	server.Do("HSET", "ratelimit:limits", "other", "v")
	for i, right := range rights[:3] { // without this one, and those behind it
		_, err := (&limits.Editor{Keeper: s}).List(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(), "the user of Redis needs the rights +hlen, +hkeys, +hstrlen and +hdel beside those of redisstore") {
			t.Errorf("with %v: %v", rights[:i], err)
		}
		server.Do("ACL", "SETUSER", "limiter", right)
	}
	server.Do("ACL", "SETUSER", "limiter", rights[3])
	if _, err := s.SwapLimit(t.Context(), "api", "", "v", "e"); err != nil {
		t.Error(err)
	}
	held, err := s.LoadLimits(t.Context())
	if err != nil || !strings.HasSuffix(held["api"], " v") {
		t.Errorf("%v, %v", held, err)
	}
	if held, err := s.SwapLimit(t.Context(), "api", held["api"], "", "e"); err != nil || held != "" {
		t.Errorf("%v, %v", held, err)
	}
}

// A change may have been made although its reply is lost, so it is not sent again. Calls end by their context, whatever
// the client's timeouts are.
func TestLimitsAreSentOnceAndEndByTheirContext(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr, o.ReadTimeout, o.MaxRetries = proxy.Addr(), 100*time.Millisecond, 5 })
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	if _, err := s.SwapLimit(t.Context(), "api", "", "v", "e"); err != nil {
		t.Fatal(err)
	}
	proxy.DropReplies()
	if _, err := s.SwapLimit(t.Context(), "login", "", "v", "e"); err == nil {
		t.Error("no error")
	}
	proxy.Pass()
	if held, err := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{})).LoadLimits(t.Context()); err != nil || held["#n"] != "2" || held["login"] == "" {
		t.Errorf("%v, %v", held, err)
	}
	proxy.Delay(time.Minute)
	defer proxy.Delay(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := s.LoadLimits(ctx)
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if _, err := s.SwapLimit(ctx, "api", "", "v", "e"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
