package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// Whatever somebody writes to the hash of limits, a replica that polls it reads no more than its bound, in one round trip.
func TestLoadLimitsIsBounded(t *testing.T) {
	const mega = 1 << 20
	var seen traffic
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return countedConn{conn, &seen}, err
		}
	}), redisstore.Config{}))
	fill := func(script string) {
		t.Helper()
		server.Do("DEL", "ratelimit:limits")
		server.Do("EVAL", script+" return 1", 1, "ratelimit:limits")
	}
	load := func() (held map[string]string, read int64, err error) {
		t.Helper()
		wrote, before := seen.writes.Load(), seen.read.Load()
		held, err = s.LoadLimits(t.Context())
		if n := seen.writes.Load() - wrote; n != 1 {
			t.Errorf("%d writes, want one", n)
		}
		return held, seen.read.Load() - before, err
	}
	if _, err := s.LoadLimits(t.Context()); err != nil { // connects, and loads the script
		t.Fatal(err)
	}

	fill(`for i = 1, 1000 do redis.call('HSET', KEYS[1], 'f' .. i, string.rep('v', 1024)) end`)
	held, _, err := load()
	if want := server.Client().HGetAll(t.Context(), "ratelimit:limits").Val(); err != nil || !maps.Equal(held, want) {
		t.Errorf("%d fields, %v", len(held), err)
	}
	server.Do("HSET", "ratelimit:limits", "one more", "")
	if _, read, err := load(); read > 100 || fmt.Sprint(err) != "redisstore: the hash of limits has 1001 fields: must have at most 1000; remove what does not belong there" {
		t.Errorf("%d bytes: %v", read, err)
	}
	fill(`for i = 1, 5000 do redis.call('HSET', KEYS[1], 'f' .. i, 'v') end`)
	if _, read, err := load(); read > 100 || !strings.Contains(fmt.Sprint(err), "5000 fields") {
		t.Errorf("%d bytes: %v", read, err)
	}

	fill(`redis.call('HSET', KEYS[1], 'login', '1 x', 'over', string.rep('v', 1025))`)
	server.Do("HSET", "ratelimit:limits", "huge", strings.Repeat("v", 50*mega), strings.Repeat("n", mega), "2 y", "#n", strings.Repeat("1", mega))
	held, read, err := load()
	want := map[string]string{"login": "1 x", "over": "1025 bytes", "huge": "52428800 bytes", "#n": "1048576 bytes"}
	if err != nil || read > 1000 || !maps.Equal(held, want) {
		t.Errorf("%d bytes: %.1000q, %v", read, held, err)
	}

	// A long value can be replaced, by its length.
	before := seen.read.Load()
	for _, step := range []struct{ was, want string }{
		{"", "52428800 bytes"},
		{"52428799 bytes", "52428800 bytes"},
		{"52428800 bytes", "new"},
	} {
		held, err := s.SwapLimit(t.Context(), "huge", step.was, "new", "e")
		if err != nil || !strings.HasSuffix(held, step.want) || len(held) > 100 {
			t.Errorf("%q: %.100q, %v", step.was, held, err)
		}
	}
	if read := seen.read.Load() - before; read > 1000 {
		t.Errorf("%d bytes", read)
	}
	if held, _, err := load(); err != nil || !strings.HasSuffix(held["huge"], " new") || held["#n"] != "1" {
		t.Errorf("%.1000q, %v", held, err)
	}
}
