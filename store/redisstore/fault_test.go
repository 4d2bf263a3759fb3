package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestRedisErrorsAreErrors(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	second := charge(t, "two")
	second.Policy = "q"
	for _, tt := range []struct {
		name    string
		before  []any // commands, of which the second undoes the first
		after   []any
		charges []store.Charge
		want    string
		kind    string
	}{
		{"a string", []any{"SET", "ratelimit:{wrong}:p", "a string"}, nil, []store.Charge{charge(t, "wrong")}, "WRONGTYPE", "no_bucket"},
		{"one of two buckets", []any{"SET", "ratelimit:{two}:q", "a string"}, nil, []store.Charge{charge(t, "two"), second}, "WRONGTYPE", "no_bucket"},
		{"no memory", []any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}, []store.Charge{charge(t, "k")}, "OOM", "oom"},
		{"a replica", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}, []store.Charge{charge(t, "k")}, "READONLY", "readonly"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
			server.Do(tt.before...)
			ok, err := tryFor(patient, s, tt.charges...)
			wantRedisError(t, ok, err, tt.want)
			wantCounted(t, s, tt.kind, 1)
			if tt.after != nil {
				server.Do(tt.after...)
			}
		})
	}
	if n := client.Exists(t.Context(), "ratelimit:{two}:p").Val(); n != 0 {
		t.Error("one of two buckets could not be read, and the other was charged")
	}
	if !server.HasACL() {
		return
	}
	for _, right := range []string{"-evalsha", "-hset"} { // the second is of the script
		s := ratelimit.Must(redisstore.New(limiter(server, "~*", "+@all", right), redisstore.Config{}))
		if ok, err := tryFor(patient, s, charge(t, "perm")); ok || !notPermitted(err) {
			t.Errorf("%s: ok %t, error %v", right, ok, err)
		}
		wantCounted(t, s, "noperm", 1)
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
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	for want := int64(99); want > 96; want-- {
		if state := take(t, s, charge(t, "k")); state.Remaining != want {
			t.Fatalf("%d remain, want %d", state.Remaining, want)
		}
		server.Do("SCRIPT", "FLUSH")
	}
}

func TestALostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	// go-redis would send again after 20 ms, and up to ten times.
	s := ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) {
		o.Addr, o.ReadTimeout, o.MaxRetries = proxy.Addr(), 20*time.Millisecond, 10
	}), redisstore.Config{}))
	direct := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	take(t, direct, charge(t, "k"))
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
		remaining = look(t, direct, charge(t, "k")).Remaining
	}
	if remaining != 98 {
		t.Errorf("%d remain, want 98: once before and once by the call that got no reply", remaining)
	}
}

// clients are all that a Store may be on, at addr, with timeouts of 5 s or none.
func clients(t *testing.T, addr string) map[string]redisstore.Client {
	all := make(map[string]redisstore.Client)
	for _, timely := range []bool{false, true} {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, HeartbeatFrequency: time.Hour, ContextTimeoutEnabled: timely})
		t.Cleanup(func() { ring.Close() })
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: timely})
		t.Cleanup(func() { client.Close() })
		all[fmt.Sprint("a ring, ContextTimeoutEnabled: ", timely)], all[fmt.Sprint("a client, ContextTimeoutEnabled: ", timely)] = ring, client
	}
	endless := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: -2})
	t.Cleanup(func() { endless.Close() })
	all["a client without a ReadTimeout"], all["a client of another type"] = endless, struct{ redisstore.Client }{dial(t, addr)}
	return all
}

func TestATakeEndsByItsDeadlineWhateverTheClientsTimeouts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for _, connected := range []bool{true, false} {
		proxy.Pass()
		for name, client := range clients(t, proxy.Addr()) {
			t.Run(fmt.Sprintf("%s, connected: %t", name, connected), func(t *testing.T) {
				s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
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

// guideACL returns the rules of the ACL that the guide to operations recommends.
func guideACL(t *testing.T) []string {
	t.Helper()
	return guideACLs(t)[0]
}

// guideACLs returns those for buckets, and those that sets of values need beside them.
func guideACLs(t *testing.T) (all [][]string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(guide)) {
		if rules, ok := strings.CutPrefix(line, "ACL SETUSER limiter "); ok {
			all = append(all, strings.Fields(rules))
		}
	}
	if len(all) != 2 {
		t.Fatalf(`docs/operations.md has %d lines that start with "ACL SETUSER limiter ", want 2`, len(all))
	}
	return all
}

func TestTheACLOfTheGuideIsEnoughAndNoMore(t *testing.T) {
	rules := guideACL(t)
	server := redistest.Start(t)
	if !server.HasACL() {
		return
	}
	// works reports whether a new client that has these rules can do all that a Store does: load the script, find it
	// loaded, charge an old and a new bucket, inspect one, and reset it.
	works := func(t *testing.T, rules []string) (err error) {
		server.Do("FLUSHALL")
		server.Do("SCRIPT", "FLUSH")
		s := ratelimit.Must(redisstore.New(limiter(server, rules...), redisstore.Config{}))
		c := owes(charge(t, "k"), 1000)
		for _, c := range []store.Charge{c, c, costs(c, store.Reset)} {
			_, taken := tryFor(patient, s, c)
			_, inspected := s.Inspect(t.Context(), "p", "k")
			err = cmp.Or(err, taken, inspected)
		}
		return err
	}
	if err := works(t, rules); err != nil {
		t.Fatalf("the ACL %v is not enough: %v", rules, err)
	}
	if n := server.Do("DBSIZE"); n != int64(0) {
		t.Error("the bucket is still there after a reset")
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
