package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestNoCallFailsWhileTheServerKeepsForgettingTheScript(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1}))
	all := targets(t, "p")
	under(s, all, patient, func() {
		repeat(lasts(), func() { server.Do("SCRIPT", "FLUSH") })
	})
	noneFailed(t, all)
	settled(t, s, client, all, patient, 0)
}

func TestFaultsOfAServerUnderLoad(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	for name, fault := range map[string]struct {
		losses int64
		happen func(*redistest.Server)
	}{
		"paused": {0, func(server *redistest.Server) {
			server.Pause()
			time.Sleep(lasts())
			server.Resume()
		}},
		"killed": {1, func(server *redistest.Server) {
			server.Kill()
			time.Sleep(300 * time.Millisecond)
			server.Restart()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client()
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
			all := targets(t, "p")
			under(s, all, timeout, func() {
				time.Sleep(200 * time.Millisecond)
				fault.happen(server)
				time.Sleep(200 * time.Millisecond)
			})
			t.Logf("works again after %v", recovers(t, s, all))
			settled(t, s, client, all, timeout, fault.losses)
		})
	}
}

func TestFaultsOfTheNetworkUnderLoad(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	for name, happen := range map[string]func(*redistest.Proxy){
		"replies are dropped": func(p *redistest.Proxy) {
			p.DropReplies()
			time.Sleep(lasts())
			p.Pass()
		},
		"replies are late": func(p *redistest.Proxy) {
			p.Delay(50 * time.Millisecond)
			time.Sleep(lasts())
			p.Pass()
		},
		"connections are cut": func(p *redistest.Proxy) { repeat(lasts(), p.Cut) },
		"replies are cut": func(p *redistest.Proxy) {
			repeat(lasts(), func() { p.CutReply(10) })
			p.Pass()
		},
		"requests are cut": func(p *redistest.Proxy) {
			repeat(lasts(), func() { p.CutRequest(100) })
			p.Pass()
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			client := server.ClientOptions(func(o *redis.Options) { o.Addr = proxy.Addr() })
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1}))
			all := targets(t, "p")
			under(s, all, timeout, func() {
				time.Sleep(200 * time.Millisecond)
				happen(proxy)
				time.Sleep(200 * time.Millisecond)
			})
			t.Logf("works again after %v", recovers(t, s, all))
			settled(t, s, client, all, timeout, 0)
		})
	}
}

func TestOnlyCallsOfABrokenKeyFailInABatch(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1}))
	all := targets(t, "p")
	server.Do("SET", "ratelimit:{k0}:p", "a string")
	server.Do("HSET", "ratelimit:{k1}:p", "tokens", "many", "unit", "x", "last_refill", "y", "limit", "z")
	under(s, all, patient, func() { time.Sleep(lasts()) })
	if wrong := all[0]; wrong.failed == 0 || wrong.allowed+wrong.denied > 0 ||
		slices.ContainsFunc(wrong.errs, func(err error) bool { return !redis.HasErrorPrefix(err, "WRONGTYPE") }) {
		t.Errorf("of a string: %d failed, %d did not: %q", wrong.failed, wrong.allowed+wrong.denied, wrong.errs)
	}
	if odd := all[1]; odd.failed == 0 || odd.allowed+odd.denied > 0 {
		t.Errorf("of a hash that is no bucket: %d failed, %d did not", odd.failed, odd.allowed+odd.denied)
	}
	noneFailed(t, all[2:])
	settled(t, s, client, all[2:], patient, 0)
}
