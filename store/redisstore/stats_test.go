package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// countScripts returns how many scripts a server was asked to run, and how many of them by their texts.
func countScripts(t *testing.T, client *redis.Client) (all, byText int64) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		for name, count := range map[string]*int64{"cmdstat_evalsha:calls=": new(int64), "cmdstat_eval:calls=": &byText} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				fmt.Sscan(strings.SplitN(rest, ",", 2)[0], count)
				all += *count
			}
		}
	}
	return all, byText
}

func redisStats(t *testing.T, s *redisstore.Store) *store.RedisStats {
	t.Helper()
	stats := s.Stats().Redis
	if stats == nil {
		t.Fatal("no RedisStats")
	}
	return stats
}

// landed waits until nothing is under way. A batch counts as in flight until shortly after its calls are answered.
func landed(t *testing.T, s *redisstore.Store) *store.RedisStats {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if stats := redisStats(t, s); stats.InFlight == 0 && stats.Queued == 0 {
			return stats
		}
	}
	t.Fatal("calls are still under way")
	return nil
}

func TestStatsAreWhatTheServerCounts(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := redisstore.New(server.ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), redisstore.Config{MaxInFlight: 1})
	defer s.Close()
	var blocks int64 // which are no batches
	check := func(calls, charges, merged, direct int64) {
		t.Helper()
		stats := landed(t, s)
		all, byText := countScripts(t, client)
		all, byText = all-blocks, byText-blocks
		if stats.Batches != all || stats.ScriptLoads != byText {
			t.Errorf("%d batches and %d loads, and the server counts %d and %d", stats.Batches, stats.ScriptLoads, all, byText)
		}
		if stats.Calls != calls || stats.Charges != charges || stats.Merged != merged || stats.Direct != direct {
			t.Errorf("%+v, want %d calls of %d charges, %d merged, %d direct", stats, calls, charges, merged, direct)
		}
	}
	for range 5 {
		take(t, s, charge(t, "a"))
	}
	check(5, 5, 0, 5)
	other := charge(t, "a")
	other.Policy = "q"
	if ok, err := s.Take(context.Background(), []store.Charge{charge(t, "a"), other}, make([]store.State, 2)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	check(6, 7, 0, 6)
	server.Do("SCRIPT", "FLUSH")
	take(t, s, charge(t, "a"))
	check(7, 8, 0, 7)

	// A blocked bucket is asked for by take_one.lua and then by take.lua; after that, the denial is known here.
	block(t, s, "blocked", time.Hour)
	blocks++
	client.ScriptLoad(t.Context(), lua.Take)
	before, _ := countScripts(t, client)
	for range 3 {
		states := make([]store.State, 1)
		if ok, err := s.Take(context.Background(), []store.Charge{charge(t, "blocked")}, states); ok || err != nil || !states[0].Blocked {
			t.Fatalf("%t, %v, %+v", ok, err, states)
		}
	}
	if after, _ := countScripts(t, client); after != before+2 {
		t.Errorf("%d script calls for a denial by a blocked bucket, want 2", after-before)
	}
	check(8, 9, 0, 8)

	// While the server hangs, one call is under way, and the others wait.
	server.Pause()
	var wait sync.WaitGroup
	call := func(key string) {
		wait.Go(func() {
			if _, err := s.Take(context.Background(), []store.Charge{charge(t, key)}, make([]store.State, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	until := func(what string, reached func(*store.RedisStats) bool) {
		for end := time.Now().Add(10 * time.Second); !reached(redisStats(t, s)); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, redisStats(t, s))
			}
		}
	}
	call("b")
	until("in flight", func(r *store.RedisStats) bool { return r.InFlight == 1 && r.Queued == 0 })
	for range 20 {
		call("b")
	}
	call("c")
	until("queued", func(r *store.RedisStats) bool { return r.Queued == 21 && r.OldestQueued > 0 })
	server.Resume()
	wait.Wait()
	check(8+22, 9+22, 19, 9)
	if stats := redisStats(t, s); stats.OldestQueued != 0 || stats.LastError != "" || !stats.LastErrorAt.IsZero() {
		t.Errorf("%+v", stats)
	}
}

// failsWith is a Client whose commands fail.
type failsWith struct{ err error }

func (f failsWith) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(f.err)
	return f.err
}

// serverError is an error of a server.
type serverError string

func (r serverError) Error() string { return string(r) }
func (serverError) RedisError()     {}

// In a bubble the process never lacks processor time, because time stands still while goroutines run. Outside of one, a
// timeout may count as overloaded.
func TestErrorsAreCountedByKind(t *testing.T) { synctest.Test(t, testErrorsAreCountedByKind) }

func testErrorsAreCountedByKind(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		kind string
	}{
		{context.DeadlineExceeded, "timeout"},
		{&net.OpError{Op: "read", Err: timesOut{}}, "timeout"},
		{dial, "network"},
		{io.EOF, "network"},
		{io.ErrUnexpectedEOF, "network"},
		{net.ErrClosed, "network"},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), "network"},
		{redis.ErrPoolTimeout, "pool"},
		{redis.ErrPoolExhausted, "pool"},
		{redis.ErrClosed, "closed"},
		{serverError("READONLY You can't write against a read only replica."), "readonly"},
		{serverError("MISCONF Errors writing to the AOF file"), "readonly"},
		{serverError("NOREPLICAS Not enough good replicas to write."), "readonly"},
		{serverError("MASTERDOWN Link with MASTER is down"), "readonly"},
		{serverError("LOADING Redis is loading the dataset in memory"), "loading"},
		{serverError("OOM command not allowed when used memory > 'maxmemory'."), "oom"},
		{serverError("NOPERM User limiter has no permissions to run the 'evalsha' command"), "noperm"},
		{serverError("ERR ACL failure in script: No permissions to access a key"), "noperm"},
		{serverError("The user executing the script can't run this command or subcommand"), "noperm"},
		{serverError("NOAUTH Authentication required."), "noperm"},
		{serverError("BUSY Redis is busy running a script."), "busy"},
		{serverError("MOVED 1 127.0.0.1:1"), "redirect"},
		{serverError("TRYAGAIN Multiple keys request during rehashing of slot"), "redirect"},
		{serverError("CLUSTERDOWN The cluster is down"), "clusterdown"},
		{serverError("NOSCRIPT No matching script."), "noscript"},
		{serverError("CROSSSLOT Keys in request don't hash to the same slot"), "crossslot"},
		{serverError("WRONGTYPE Operation against a key holding the wrong kind of value"), "no_bucket"},
		{serverError("ERR the key holds no bucket script: f"), "no_bucket"},
		{serverError("ERR something else"), "other"},
		{errors.New("of a hook"), "other"},
	} {
		s := redisstore.New(failsWith{c.err}, redisstore.Config{})
		for range 2 {
			if _, err := s.Take(t.Context(), []store.Charge{charge(t, "k")}, make([]store.State, 1)); err == nil {
				t.Fatalf("%v: no error", c.err)
			}
		}
		stats := redisStats(t, s)
		var total int64
		for _, n := range stats.Errors {
			total += n
		}
		if stats.Errors[c.kind] != 2 || total != 2 || len(stats.Errors) != 18 {
			t.Errorf("%v is counted as %v, want %s", c.err, stats.Errors, c.kind)
		}
		if stats.LastError == "" || stats.LastErrorAt.IsZero() {
			t.Errorf("%v: the last error is %q, at %v", c.err, stats.LastError, stats.LastErrorAt)
		}
	}
}

type timesOut struct{}

func (timesOut) Error() string   { return "i/o timeout" }
func (timesOut) Timeout() bool   { return true }
func (timesOut) Temporary() bool { return true }

func TestTheTextOfTheLastErrorIsCutAndEscaped(t *testing.T) {
	s := redisstore.New(failsWith{serverError("ERR <b>\x1b[2J" + strings.Repeat("x", 10_000))}, redisstore.Config{})
	_, _ = s.Take(t.Context(), []store.Charge{charge(t, "k")}, make([]store.State, 1))
	if text := redisStats(t, s).LastError; len(text) > 300 || strings.ContainsRune(text, 0x1b) || !strings.Contains(text, "ERR <b>") {
		t.Errorf("%q", text)
	}
}

func TestErrorsOfAServerAreCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opened := func(cfg redisstore.Config) *redisstore.Store {
		s := redisstore.New(server.ClientOptions(func(o *redis.Options) {
			o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.ReadTimeout = -1, 1, true, 500*time.Millisecond
		}), cfg)
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := opened(redisstore.Config{MaxDenials: -1})
	fails := func(s *redisstore.Store, ctx context.Context, key, kind string) {
		t.Helper()
		before := redisStats(t, s).Errors[kind]
		if _, err := s.Take(ctx, []store.Charge{charge(t, key)}, make([]store.State, 1)); err == nil {
			t.Fatalf("%s: no error", kind)
		} else if after := redisStats(t, s).Errors; after[kind] != before+1 {
			t.Errorf("%v is counted as %v, want %s", err, after, kind)
		}
	}
	take(t, s, charge(t, "k"))
	server.Do("SET", "ratelimit:{text}:p", "text")
	fails(s, t.Context(), "text", "no_bucket")
	server.Do("CONFIG", "SET", "maxmemory", "1")
	fails(s, t.Context(), "k", "oom")
	server.Do("CONFIG", "SET", "maxmemory", "0")
	server.Do("REPLICAOF", "127.0.0.1", "1")
	fails(s, t.Context(), "k", "readonly")
	server.Do("REPLICAOF", "NO", "ONE")
	if server.HasACL() {
		server.Do("ACL", "SETUSER", "weak", "on", ">secret", "~ratelimit:*", "-@all", "+evalsha", "+eval", "+time", "+hmget")
		weak := redisstore.New(server.ClientOptions(func(o *redis.Options) { o.Username, o.Password = "weak", "secret" }), redisstore.Config{})
		defer weak.Close()
		fails(weak, t.Context(), "w", "noperm")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	fails(s, canceled, "k", "canceled")
	take(t, s, charge(t, "k"))

	server.Pause()
	timedOut := func() bool { // whether a call was late for another reason than a lack of processor time
		short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		before := redisStats(t, s).Errors
		_, err := s.Take(short, []store.Charge{charge(t, "k")}, make([]store.State, 1))
		if err == nil {
			t.Fatal("timeout: no error")
		}
		after := redisStats(t, s).Errors
		if errors.Is(err, store.ErrOverloaded) && after["overloaded"] == before["overloaded"]+1 {
			return false
		}
		if after["timeout"] != before["timeout"]+1 {
			t.Errorf("%v is counted as %v, want timeout", err, after)
		}
		return true
	}
	for begin := time.Now(); !timedOut(); {
		if time.Since(begin) > patient {
			t.Fatal("calls of a server that hangs count as overloaded")
		}
	}
	full := opened(redisstore.Config{MaxQueue: 1, MaxInFlight: 1})
	long, stop := context.WithTimeout(t.Context(), 20*time.Second)
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() { _, _ = full.Take(long, []store.Charge{charge(t, "k")}, make([]store.State, 1)) })
	}
	for end := time.Now().Add(10 * time.Second); redisStats(t, full).Queued < 1 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	fails(full, long, "k", "queue_full")
	stop()
	wait.Wait()
	server.Resume()
	server.Kill()
	fails(s, t.Context(), "k", "network")
	s.Close()
	fails(s, t.Context(), "k", "closed")
}

// Calls whose keys are at two masters of a Cluster are sent again, and count once.
func TestStatsOfCallsThatAreSentAgain(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	s := redisstore.New(cluster.Client(), redisstore.Config{Prefix: "again", MaxDenials: -1})
	defer s.Close()
	here, there := charge(t, "k"), charge(t, "k")
	there.Policy = "q"
	take(t, s, here)
	take(t, s, there)
	slot := cluster.Slot("again:{k}:p")
	cluster.StartMigration(slot, 1-cluster.Owner(slot)).MoveKeys(1)
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if _, err := s.Take(ctx, []store.Charge{here, there}, make([]store.State, 2)); err == nil || !strings.Contains(err.Error(), "TRYAGAIN") {
				t.Errorf("%v, want TRYAGAIN", err)
			}
		})
	}
	calls.Wait()
	stats := landed(t, s)
	if stats.Calls != 5 || stats.Charges != 8 || stats.Merged > 2 || stats.Redirects < 2 || stats.Batches < 4 || stats.Errors["redirect"] != 3 {
		t.Errorf("%+v, want 5 calls of 8 charges, sent again and again", stats)
	}
}

func TestStatsWhileCallsAreSent(t *testing.T) {
	s := redisstore.New(redistest.Start(t).Client(), redisstore.Config{MaxDenials: -1})
	defer s.Close()
	over := make(chan struct{})
	var reader, callers sync.WaitGroup
	reader.Go(func() {
		last := int64(0)
		for done := false; !done; {
			select {
			case <-over:
				done = true
			default:
			}
			stats := redisStats(t, s)
			if stats.Calls < last || stats.Merged > stats.Calls {
				t.Errorf("%+v after %d calls", stats, last)
			}
			last = stats.Calls
		}
	})
	const goroutines, each = 16, 50
	for g := range goroutines {
		callers.Go(func() {
			for i := range each {
				if _, err := s.Take(t.Context(), []store.Charge{charge(t, fmt.Sprint(i%3*g))}, make([]store.State, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	close(over)
	reader.Wait()
	if stats := landed(t, s); stats.Calls != goroutines*each || stats.Charges != goroutines*each {
		t.Errorf("%+v, want %d calls", stats, goroutines*each)
	}
}
