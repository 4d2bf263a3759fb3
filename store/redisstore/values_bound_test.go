package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A traffic counts what connections write and read.
type traffic struct{ writes, read atomic.Int64 }

type countedConn struct {
	net.Conn
	*traffic
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// counted opens a Store on a client of server that counts its traffic.
func counted(server *redistest.Server) (*redisstore.Store, *traffic) {
	seen := new(traffic)
	return ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return countedConn{conn, seen}, err
		}
	}), redisstore.Config{})), seen
}

// Ten thousand values are read 500 at once, and after that only changes.
func TestManyValuesAreReadInPagesAndThenOnlyChanges(t *testing.T) {
	const many = 10_000
	s, seen := counted(redistest.Start(t))
	var last store.Value
	for i := range many {
		last = writeValue(t, s, store.Value{Name: fmt.Sprint("name", i), Text: strings.Repeat("t", 100)})
	}
	read := func(after store.Value, values int, calls, bytes int64) {
		t.Helper()
		writes, before := seen.writes.Load(), seen.read.Load()
		got, err := s.ReadValues(t.Context(), "s", after)
		if err != nil || len(got.Values) != values || got.All != (after.Version == 0) {
			t.Fatalf("%d values, all %t, error %v, want %d", len(got.Values), got.All, err, values)
		}
		if writes, read := seen.writes.Load()-writes, seen.read.Load()-before; writes != calls || read > bytes {
			t.Errorf("%d calls and %d bytes, want %d and at most %d", writes, read, calls, bytes)
		}
	}
	read(store.Value{}, many, many/500+1, 250*many)
	read(last, 0, 1, 100)
	writeValue(t, s, store.Value{Name: "name7", Text: "changed", Version: store.AnyVersion})
	read(last, 1, 1, 250)
}

// Whatever somebody writes to the keys by hand, values that were written properly are read, the reply is bounded, and names
// without a proper value can be written.
func TestValuesBesideWhatIsWrittenByHand(t *testing.T) {
	const mega = 1 << 20
	server := redistest.Start(t)
	s, seen := counted(server)
	first := writeValue(t, s, store.Value{Name: "first", Text: "1"})
	huge := writeValue(t, s, store.Value{Name: "huge", Text: "2"})
	read := func(after store.Value, all bool, want string) {
		t.Helper()
		before := seen.read.Load()
		wantValues(t, s, after, all, want)
		if n := seen.read.Load() - before; n > 200_000 {
			t.Errorf("%d bytes were read", n)
		}
	}
	read(store.Value{}, true, "first=1 huge=2")

	version := fmt.Sprint(huge.Version + 1)
	server.Do("HSET", "ratelimit:{s}", "huge", fmt.Sprint(huge.Version, " 0 ", strings.Repeat("v", 50*mega)))
	server.Do("HSET", "ratelimit:{s}", strings.Repeat("n", mega), version+" 0 long", "", version+" 0 empty", "unlisted", version+" 0 x")
	server.Do("ZADD", "ratelimit:{s}#versions", version, strings.Repeat("n", mega), version, "empty", version, "deleted")
	for i, rubbish := range []string{"", " ", "x", version, version + " ", version + " 0", version + " x y", "-1 0 x", "1e300 0 x", "99999999999999999999 0 x", version + " 99999999999999999999 x", version + " -1 x", version + "  0 x"} {
		server.Do("HSET", "ratelimit:{s}", fmt.Sprint("rubbish", i), rubbish)
		server.Do("ZADD", "ratelimit:{s}#versions", version, fmt.Sprint("rubbish", i))
	}
	read(store.Value{}, true, "first=1")
	read(first, false, "")
	for _, name := range []string{"huge", "deleted", "rubbish2", "rubbish6"} {
		writeValue(t, s, store.Value{Name: name, Text: "new"})
	}
	last := writeValue(t, s, store.Value{Name: "rubbish9", Text: "new", Version: store.AnyVersion})
	read(first, false, "huge=new deleted=new rubbish2=new rubbish6=new rubbish9=new")

	for i, score := range []string{"inf", "-inf", "0.5", "-1"} {
		server.Do("ZADD", "ratelimit:{s}#versions", score, "by hand")
		server.Do("HSET", "ratelimit:{s}", "", []string{"inf", "nan", "x", "-1"}[i]) // the last version
		v := writeValue(t, s, store.Value{Name: "v", Text: fmt.Sprint(i), Version: store.AnyVersion})
		if since := time.Since(time.UnixMicro(v.Version)); since < -time.Minute || since > time.Minute {
			t.Errorf("score %s: version %d", score, v.Version)
		}
		read(last, false, "v="+fmt.Sprint(i))
		last = v
	}

	server.Do("EVAL", `for i = 1, 2000 do redis.call('ZADD', KEYS[1], 7, 'none' .. i) end return 1`, 1, "ratelimit:{s}#versions")
	read(store.Value{}, true, "first=1 huge=new deleted=new rubbish2=new rubbish6=new rubbish9=new v=3")
}

// What somebody has written by hand stops no later write. If ReadValues does not return it, a value takes its place that is
// written as the first one of its name.
func TestWhatIsWrittenByHandIsReplaced(t *testing.T) {
	const latest int64 = 9007199254740991
	server := redistest.Start(t)
	s, _ := counted(server)
	first := writeValue(t, s, store.Value{Name: "first", Text: "1"})
	next, month := first.Version+1, first.Version+30*24*3600*1_000_000
	server.Do("HSET", "ratelimit:{s}", "", fmt.Sprint(latest-1)) // the last version
	for i, c := range []struct {
		text  string
		score int64
	}{
		{"99999999999999999999 0 x", next}, {"0 0 x", 0}, {"00 0 x", next}, {fmt.Sprint("0", next, " 0 x"), next},
		{fmt.Sprint(latest, " 0 x"), latest}, {fmt.Sprint(latest+1, " 0 x"), latest + 1}, {fmt.Sprint(latest-1, " 0 x"), latest - 1}, {fmt.Sprint(2*next, " 0 x"), 2 * next},
		{fmt.Sprint(next, " 99999999999999999999 x"), next}, {fmt.Sprint(next, " ", latest+1, " x"), next}, {fmt.Sprint(next, " ", latest, " x"), next}, {fmt.Sprint(next, " 00 x"), next},
		{fmt.Sprint(month, " 0 x"), month},
	} {
		name := fmt.Sprint("rubbish", i)
		server.Do("HSET", "ratelimit:{s}", name, c.text)
		server.Do("ZADD", "ratelimit:{s}#versions", c.score, name)
		v := store.Value{Name: name, Text: "new", Version: valueOf(t, s, name).Version}
		now, written, err := s.WriteValue(t.Context(), "s", v)
		if got := valueOf(t, s, name); err != nil || !written || got != now || now.Version <= v.Version {
			t.Errorf("%.30q: over version %d: %+v, %t, %v, and is %+v", c.text, v.Version, now, written, err, got)
		}
	}

	server.Do("HSET", "ratelimit:{s}", "unlisted", fmt.Sprint(next, " 0 x"))
	now, written, err := s.WriteValue(t.Context(), "s", store.Value{Name: "unlisted", Text: "new"})
	if got := valueOf(t, s, "unlisted"); err != nil || !written || got != now {
		t.Errorf("unlisted: %+v, %t, %v, and is %+v", now, written, err, got)
	}
}

// valueOf returns a value of the set s, if there is one.
func valueOf(t *testing.T, s store.Values, name string) (found store.Value) {
	t.Helper()
	changes, err := s.ReadValues(t.Context(), "s", store.Value{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range changes.Values {
		if v.Name == name {
			found = v
		}
	}
	return found
}

func TestKeysThatHoldNoValuesAreNamed(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	for _, key := range []string{"ratelimit:{s}", "ratelimit:{s}#versions", "ratelimit:{s}#ends"} {
		server.Do("SET", key, "a string")
		_, err := s.ReadValues(t.Context(), "s", store.Value{})
		_, _, also := s.WriteValue(t.Context(), "s", store.Value{Name: "v"})
		for _, err := range []error{err, also} {
			if !redis.HasErrorPrefix(err, "WRONGTYPE") || !strings.HasSuffix(err.Error(), ": delete the key that is not a hash, or not a sorted set, of ratelimit:{s}, ratelimit:{s}#versions, ratelimit:{s}#ends") {
				t.Errorf("%s: %v", key, err)
			}
		}
		server.Do("DEL", key)
	}
	writeValue(t, s, store.Value{Name: "v"})
}
