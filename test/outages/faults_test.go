//go:build long

package outages_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A fault is one kind of trouble.
type fault struct {
	name  string
	cause string // is in the errors of those who ask Redis

	// prepare starts the servers, and returns how to make a client, and how the trouble begins and ends. When end
	// returns, Redis is well again.
	prepare func(t *testing.T) (client func() redisstore.Client, begin, end func())

	lasts time.Duration // default 1.5 s
	slow  time.Duration // replies take so long, and most are in time

	lost bool // the buckets are full afterwards
}

var faults = []fault{
	{name: "refused connection", cause: "connection refused", prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := lasting(t)
		return at(t, s.Addr()), s.Kill, s.Restart
	}},
	{name: "black hole", cause: "in time", prepare: proxied((*redistest.Proxy).BlackHole)},
	{name: "50 ms latency", cause: "in time", slow: 50 * time.Millisecond, prepare: proxied(func(p *redistest.Proxy) { p.Delay(50 * time.Millisecond) })},
	{name: "500 ms latency", cause: "in time", prepare: proxied(func(p *redistest.Proxy) { p.Delay(500 * time.Millisecond) })},
	{name: "dropped replies", cause: "in time", prepare: proxied((*redistest.Proxy).DropReplies)},
	{name: "SIGSTOP for 3 s", cause: "in time", lasts: 3 * time.Second, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.Start(t)
		return at(t, s.Addr()), s.Pause, s.Resume
	}},
	{name: "kill -9 and restart, with AOF", lasts: time.Millisecond, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := lasting(t)
		return at(t, s.Addr()), s.Restart, func() {}
	}},
	{name: "restart with an empty data set", cause: "connection refused", lost: true, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.Start(t)
		return at(t, s.Addr()), s.Kill, s.Restart
	}},
	{name: "OOM at maxmemory", cause: "OOM", prepare: configured("maxmemory", "1", "0")},
	{name: "read-only replica", cause: "READONLY", prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.Start(t)
		// Of a master that is not there, so that it keeps its data.
		return at(t, s.Addr()), func() { s.Do("REPLICAOF", "127.0.0.1", "1") }, func() { s.Do("REPLICAOF", "NO", "ONE") }
	}},
	{name: "LOADING", cause: "LOADING", lasts: time.Millisecond, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		// A second to load, in which it answers every few milliseconds.
		s := redistest.Start(t, "--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no")
		s.Do("EVAL", "for i = 1, 5000 do redis.call('SET', 'other:' .. i, 'something to load') end return 1", "0")
		begin := func() {
			s.Do("SAVE")
			s.Restart()
		}
		return at(t, s.Addr()), begin, func() { loaded(t, s) }
	}},
	{name: "wrong password", cause: "WRONGPASS", prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.Start(t)
		password := func(word string) { s.Do("ACL", "SETUSER", "limiter", "on", "resetpass", ">"+word, "~*", "+@all") }
		password("right")
		client := connect(t, func(o *redis.Options) { o.Addr, o.Username, o.Password = s.Addr(), "limiter", "right" })
		wrong := func() {
			password("other")
			s.Do("CLIENT", "KILL", "USER", "limiter")
		}
		return client, wrong, func() { password("right") }
	}},
	{name: "wrong type at the key", cause: "WRONGTYPE", lost: true, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.Start(t)
		each := func(command string, args ...any) {
			for _, api := range apis {
				s.Do(append([]any{command, "ratelimit:{key:a}:" + api}, args...)...)
			}
		}
		return at(t, s.Addr()), func() { each("SET", "no hash") }, func() { each("DEL") }
	}},
	{name: "full disk with AOF", cause: "MISCONF", prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		dir := t.TempDir()
		s := redistest.Start(t, "--dir", dir)
		// The file that the log is begun in is one on a disk that is always full.
		logs := filepath.Join(dir, "appendonlydir")
		if err := os.Mkdir(logs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/full", filepath.Join(dir, "temp-appendonly.aof.incr")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/full", filepath.Join(logs, "temp-appendonly.aof.incr")); err != nil {
			t.Fatal(err)
		}
		return at(t, s.Addr()), func() { s.Do("CONFIG", "SET", "appendonly", "yes") }, func() { s.Do("CONFIG", "SET", "appendonly", "no") }
	}},
	{name: "cluster master killed", cause: "refused", lost: true, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		c := redistest.StartClusterWithReplicas(t, 3)
		client := func() redisstore.Client {
			o, err := redisstore.ClusterOptions("redis://" + c.Addrs()[0] + "?addr=" + strings.Join(c.Addrs()[1:], "&addr="))
			if err != nil {
				t.Fatal(err)
			}
			client := redis.NewClusterClient(o)
			t.Cleanup(func() { client.Close() })
			return client
		}
		owner := c.Owner(c.Slot("{key:a}"))
		return client, c.Nodes[owner].Kill, func() { c.WaitFailover(owner) }
	}},
	{name: "Sentinel failover", lost: true, prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.StartSentinelWithReplica(t)
		return func() redisstore.Client { return s.Client() }, s.Master.Kill, s.WaitFailover
	}},
	{name: "DNS failure", cause: "lookup redis.invalid", prepare: func(t *testing.T) (func() redisstore.Client, func(), func()) {
		resolver := net.DefaultResolver
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no DNS server answers")
		}}
		t.Cleanup(func() { net.DefaultResolver = resolver })
		p := redistest.NewProxy(t, redistest.Start(t).Addr())
		var unknown atomic.Bool
		client := connect(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				if unknown.Load() {
					return dial(ctx, network, "redis.invalid:6379")
				}
				return dial(ctx, network, p.Addr())
			}
		})
		return client, func() { unknown.Store(true); p.Cut() }, func() { unknown.Store(false) }
	}},
}

// lasting starts a server that keeps its data when it is killed.
func lasting(t *testing.T, args ...string) *redistest.Server {
	return redistest.Start(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, args...)...)
}

// loaded waits until s has read its data.
func loaded(t *testing.T, s *redistest.Server) {
	for strings.Contains(s.Do("INFO", "persistence").(string), "loading:1") {
		time.Sleep(10 * time.Millisecond)
	}
}

// connect returns what makes clients with the options that Options gives, changed by modify.
func connect(t *testing.T, modify func(*redis.Options)) func() redisstore.Client {
	return func() redisstore.Client {
		o, err := redisstore.Options("redis://127.0.0.1/0")
		if err != nil {
			t.Fatal(err)
		}
		modify(o)
		client := redis.NewClient(o)
		t.Cleanup(func() { client.Close() })
		return client
	}
}

func at(t *testing.T, addr string) func() redisstore.Client {
	return connect(t, func(o *redis.Options) { o.Addr = addr })
}

// proxied is a server behind a proxy that makes the trouble.
func proxied(begin func(*redistest.Proxy)) func(*testing.T) (func() redisstore.Client, func(), func()) {
	return func(t *testing.T) (func() redisstore.Client, func(), func()) {
		p := redistest.NewProxy(t, redistest.Start(t).Addr())
		return at(t, p.Addr()), func() { begin(p) }, p.Pass
	}
}

// configured is a server with a setting that makes the trouble.
func configured(name, wrong, right string) func(*testing.T) (func() redisstore.Client, func(), func()) {
	return func(t *testing.T) (func() redisstore.Client, func(), func()) {
		s := redistest.Start(t)
		return at(t, s.Addr()), func() { s.Do("CONFIG", "SET", name, wrong) }, func() { s.Do("CONFIG", "SET", name, right) }
	}
}
