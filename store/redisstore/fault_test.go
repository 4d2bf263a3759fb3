package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func charge(t *testing.T, key string) store.Charge {
	return store.Charge{Policy: "p", Key: key, Limit: limit(t, 1, time.Hour, 100), Cost: 1}
}

// try makes a call that may fail, with 100 ms.
func try(s store.Store, charges ...store.Charge) (bool, error) {
	return tryFor(100*time.Millisecond, s, charges...)
}

func tryFor(d time.Duration, s store.Store, charges ...store.Charge) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return s.Take(ctx, charges, make([]store.State, len(charges)))
}

func TestRedisErrorsAreErrors(t *testing.T) {
	const patience = 10 * time.Second // for a machine that is busy: these errors are answers, not deadlines
	server := redistest.Start(t)
	client := server.Client()
	s := redisstore.New(client, redisstore.Config{})

	t.Run("WRONGTYPE", func(t *testing.T) {
		server.Do("SET", "ratelimit:{wrong}:p", "a string")
		ok, err := tryFor(patience, s, charge(t, "wrong"))
		wantRedisError(t, ok, err, "WRONGTYPE")
	})
	t.Run("WRONGTYPE of one of two buckets charges neither", func(t *testing.T) {
		server.Do("SET", "ratelimit:{two}:q", "a string")
		second := charge(t, "two")
		second.Policy = "q"
		ok, err := tryFor(patience, s, charge(t, "two"), second)
		wantRedisError(t, ok, err, "WRONGTYPE")
		if n := client.Exists(t.Context(), "ratelimit:{two}:p").Val(); n != 0 {
			t.Error("the other bucket was charged")
		}
	})
	t.Run("a hash that is no bucket", func(t *testing.T) {
		server.Do("HSET", "ratelimit:{odd}:p", "tokens", "many")
		ok, err := tryFor(patience, s, charge(t, "odd"))
		if ok || err == nil {
			t.Errorf("ok %t, error %v", ok, err)
		}
	})
	t.Run("NOPERM", func(t *testing.T) {
		if !server.HasACL() {
			return
		}
		server.Do("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-evalsha")
		ok, err := tryFor(patience, redisstore.New(server.ClientOptions(func(o *redis.Options) { o.Username, o.Password = "reader", "secret" }), redisstore.Config{}), charge(t, "perm"))
		wantRedisError(t, ok, err, "NOPERM")
	})
	t.Run("a command of the script that is not permitted", func(t *testing.T) {
		if !server.HasACL() {
			return
		}
		server.Do("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-hset")
		ok, err := tryFor(patience, redisstore.New(server.ClientOptions(func(o *redis.Options) { o.Username, o.Password = "reader", "secret" }), redisstore.Config{}), charge(t, "perm"))
		if ok || !notPermitted(err) {
			t.Errorf("ok %t, error %v", ok, err)
		}
	})
	t.Run("OOM", func(t *testing.T) {
		server.Do("CONFIG", "SET", "maxmemory", "1")
		defer server.Do("CONFIG", "SET", "maxmemory", "0")
		ok, err := tryFor(patience, s, charge(t, "oom"))
		wantRedisError(t, ok, err, "OOM")
	})
	t.Run("READONLY", func(t *testing.T) {
		server.Do("REPLICAOF", "127.0.0.1", "1")
		defer server.Do("REPLICAOF", "NO", "ONE")
		ok, err := tryFor(patience, s, charge(t, "readonly"))
		wantRedisError(t, ok, err, "READONLY")
	})
}

func wantRedisError(t *testing.T, ok bool, err error, prefix string) {
	t.Helper()
	if ok || !redis.HasErrorPrefix(err, prefix) {
		t.Errorf("ok %t, error %v, want %s", ok, err, prefix)
	}
}

// notPermitted reports whether err is of the ACL. Redis up to 7.0 and KeyDB, and Redis since 7.2 and Valkey, have other
// words for what a script runs.
func notPermitted(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "The user executing the script can't run this command") ||
		redis.HasErrorPrefix(err, "ACL failure in script: User ")
}

func TestAScriptThatTheServerForgotIsSentAgain(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), redisstore.Config{})
	for want := range 3 {
		if state := take(t, s, charge(t, "k")); state.Remaining != int64(99-want) {
			t.Fatalf("%d remain, want %d", state.Remaining, 99-want)
		}
		server.Do("SCRIPT", "FLUSH")
	}
	server.Kill()
	server.Restart()
	if state := take(t, s, charge(t, "k")); state.Remaining != 99 {
		t.Fatalf("%d remain of an empty server, want 99", state.Remaining)
	}
}

func TestALostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	// go-redis would send again after 20 ms, and up to ten times.
	s := redisstore.New(server.ClientOptions(func(o *redis.Options) {
		o.Addr, o.ReadTimeout, o.MaxRetries = proxy.Addr(), 20*time.Millisecond, 10
	}), redisstore.Config{})
	direct := redisstore.New(server.Client(), redisstore.Config{})
	take(t, direct, charge(t, "k"))
	peek := charge(t, "k")
	peek.Cost = 0
	remaining := int64(99)
	for tries := 0; remaining == 99 && tries < 10; tries++ { // again, if this process was too busy to send the call
		// It would do so on another connection, which must be there: to make one takes replies, too.
		proxy.Delay(10 * time.Millisecond)
		var warm sync.WaitGroup
		for range 8 {
			warm.Go(func() { try(s, charge(t, "other")) })
		}
		warm.Wait()
		proxy.Pass()
		try(s, charge(t, "other"))
		proxy.DropReplies()
		if ok, err := try(s, charge(t, "k")); ok || err == nil {
			t.Fatalf("ok %t, error %v without a reply", ok, err)
		}
		proxy.Pass()
		remaining = take(t, direct, peek).Remaining
	}
	if remaining != 98 {
		t.Errorf("%d remain, want 98: once before and once by the call that got no reply", remaining)
	}
}

// clients are all that a Store may be on, at addr, with timeouts of 5 s or none.
func clients(t *testing.T, addr string) map[string]redisstore.Client {
	plain := redis.NewClient(&redis.Options{Addr: addr})
	timely := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, HeartbeatFrequency: time.Hour})
	timelyRing := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, HeartbeatFrequency: time.Hour, ContextTimeoutEnabled: true})
	endless := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: -2})
	foreign := struct{ redisstore.Client }{redis.NewClient(&redis.Options{Addr: addr})}
	t.Cleanup(func() {
		plain.Close()
		timely.Close()
		ring.Close()
		timelyRing.Close()
		endless.Close()
		foreign.Client.(*redis.Client).Close()
	})
	return map[string]redisstore.Client{
		"a client": plain, "a client with ContextTimeoutEnabled": timely,
		"a ring": ring, "a ring with ContextTimeoutEnabled": timelyRing, "a client of another type": foreign,
		"a client without a ReadTimeout": endless,
	}
}

func TestATakeEndsByItsDeadlineWhateverTheClientsTimeouts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for _, connected := range []bool{true, false} {
		proxy.Pass()
		for name, client := range clients(t, proxy.Addr()) {
			t.Run(fmt.Sprintf("%s, connected: %t", name, connected), func(t *testing.T) {
				s := redisstore.New(client, redisstore.Config{})
				proxy.Pass()
				if connected {
					take(t, s, charge(t, "k"))
				}
				proxy.BlackHole()
				begin := time.Now()
				ok, err := try(s, charge(t, "k"))
				if ok || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("ok %t, error %v, want the deadline's", ok, err)
				}
				if took := time.Since(begin); took < 100*time.Millisecond || took > 2*time.Second {
					t.Errorf("took %v of 100 ms", took)
				}
			})
		}
	}
}

// A hook notes the commands that it sees.
type hook struct{ commands []string }

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.commands = append(h.commands, cmd.Name())
		return next(ctx, cmd)
	}
}
func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestHooksOfAClientWithContextTimeoutEnabledSeeItsCommands(t *testing.T) {
	client := redistest.Start(t).ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	var h hook
	client.AddHook(&h)
	take(t, redisstore.New(client, redisstore.Config{}), charge(t, "k"))
	if !slices.Contains(h.commands, "evalsha") || !slices.Contains(h.commands, "eval") {
		t.Errorf("the hook saw %v, want EVALSHA of a script that the server does not know yet, and EVAL", h.commands)
	}
}

func TestAPausedAndAKilledServer(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), redisstore.Config{})
	take(t, s, charge(t, "k"))
	server.Pause()
	if ok, err := try(s, charge(t, "k")); ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("paused: ok %t, error %v", ok, err)
	}
	server.Resume()
	take(t, s, charge(t, "k"))
	server.Kill()
	if ok, err := try(s, charge(t, "k")); ok || err == nil {
		t.Errorf("killed: ok %t, error %v", ok, err)
	}
	server.Restart()
	take(t, s, charge(t, "k"))
}

// guideACL returns the rules of the ACL that the guide to operations recommends.
func guideACL(t *testing.T) []string {
	t.Helper()
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(guide)) {
		if rules, ok := strings.CutPrefix(line, "ACL SETUSER limiter "); ok {
			return strings.Fields(rules)
		}
	}
	t.Fatal(`docs/operations.md has no line that starts with "ACL SETUSER limiter "`)
	return nil
}

func TestTheACLOfTheGuideIsEnoughAndNoMore(t *testing.T) {
	rules := guideACL(t)
	server := redistest.Start(t)
	if !server.HasACL() {
		return
	}
	// works reports whether a new client that has these rules can do all that a Store does: load the
	// script, find it loaded, and charge an old and a new bucket.
	works := func(t *testing.T, rules []string) (err error) {
		server.Do("ACL", "DELUSER", "limiter")
		set := []any{"ACL", "SETUSER", "limiter"}
		for _, rule := range rules {
			set = append(set, rule)
		}
		server.Do(set...)
		server.Do("FLUSHALL")
		server.Do("SCRIPT", "FLUSH")
		client := server.ClientOptions(func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" })
		s := redisstore.New(client, redisstore.Config{})
		for range 2 {
			if _, e := s.Take(context.Background(), []store.Charge{owes(charge(t, "k"), 1000)}, make([]store.State, 1)); e != nil {
				err = e
			}
		}
		return err
	}
	if err := works(t, rules); err != nil {
		t.Fatalf("the ACL %v is not enough: %v", rules, err)
	}
	commands := 0
	for i, rule := range rules {
		if strings.HasPrefix(rule, "+") || strings.HasPrefix(rule, "~") {
			commands++
			fewer := append(append([]string(nil), rules[:i]...), rules[i+1:]...)
			if err := works(t, fewer); !notPermitted(err) {
				t.Errorf("without %s: error %v, want one of the ACL", rule, err)
			}
		}
	}
	if commands < 5 {
		t.Errorf("only %d rules were tried: %v", commands, rules)
	}
	if !strings.Contains(fmt.Sprint(rules), "-@all") {
		t.Errorf("the ACL %v does not start from nothing", rules)
	}
}
