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

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

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
	var stats *store.RedisStats
	until(t, "nothing is under way", func() bool {
		stats = redisStats(t, s)
		return stats.InFlight == 0 && stats.Queued == 0
	})
	return stats
}

func TestStatsAreWhatTheServerCounts(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true }), redisstore.Config{MaxInFlight: 1}))
	defer s.Close()
	blocks := 0 // which are no batches
	check := func(calls, charges, merged, direct int64) {
		t.Helper()
		stats := landed(t, s)
		all, byText := commandCalls(t, client, "evalsha", "eval")-blocks, commandCalls(t, client, "eval")-blocks
		if stats.Batches != int64(all) || stats.ScriptLoads != int64(byText) {
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
	takeAll(t, s, charge(t, "a"), other)
	check(6, 7, 0, 6)
	server.Do("SCRIPT", "FLUSH")
	take(t, s, charge(t, "a"))
	check(7, 8, 0, 7)

	// A blocked bucket is asked for by take_one.lua and then by take.lua; after that, the denial is known here.
	block(t, s, "blocked", time.Hour)
	blocks++
	client.ScriptLoad(t.Context(), lua.Take)
	before := commandCalls(t, client, "evalsha", "eval")
	for range 3 {
		if state := take(t, s, charge(t, "blocked")); state.Allowed || !state.Blocked {
			t.Fatalf("%+v", state)
		}
	}
	if after := commandCalls(t, client, "evalsha", "eval"); after != before+2 {
		t.Errorf("%d script calls for a denial by a blocked bucket, want 2", after-before)
	}
	check(8, 9, 0, 8)

	// While the server hangs, one call is under way, and the others wait.
	server.Pause()
	var wait sync.WaitGroup
	call := func(key string) {
		wait.Go(func() {
			if _, err := tryIn(context.Background(), s, charge(t, key)); err != nil {
				t.Error(err)
			}
		})
	}
	call("b")
	until(t, "one is in flight", func() bool { r := redisStats(t, s); return r.InFlight == 1 && r.Queued == 0 })
	for range 20 {
		call("b")
	}
	call("c")
	until(t, "the others wait", func() bool { r := redisStats(t, s); return r.Queued == 21 && r.OldestQueued > 0 })
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
		{redisError("READONLY You can't write against a read only replica."), "readonly"},
		{redisError("MISCONF Errors writing to the AOF file"), "readonly"},
		{redisError("NOREPLICAS Not enough good replicas to write."), "readonly"},
		{redisError("MASTERDOWN Link with MASTER is down"), "readonly"},
		{redisError("LOADING Redis is loading the dataset in memory"), "loading"},
		{redisError("OOM command not allowed when used memory > 'maxmemory'."), "oom"},
		{redisError("NOPERM User limiter has no permissions to run the 'evalsha' command"), "noperm"},
		{redisError("ERR ACL failure in script: No permissions to access a key"), "noperm"},
		{redisError("The user executing the script can't run this command or subcommand"), "noperm"},
		{redisError("NOAUTH Authentication required."), "noperm"},
		{redisError("BUSY Redis is busy running a script."), "busy"},
		{redisError("MOVED 1 127.0.0.1:1"), "redirect"},
		{redisError("TRYAGAIN Multiple keys request during rehashing of slot"), "redirect"},
		{redisError("CLUSTERDOWN The cluster is down"), "clusterdown"},
		{redisError("NOSCRIPT No matching script."), "noscript"},
		{redisError("CROSSSLOT Keys in request don't hash to the same slot"), "crossslot"},
		{redisError("WRONGTYPE Operation against a key holding the wrong kind of value"), "no_bucket"},
		{redisError("ERR the key holds no bucket script: f"), "no_bucket"},
		{redisError("ERR something else"), "other"},
		{errors.New("of a hook"), "other"},
	} {
		s := ratelimit.Must(redisstore.New(failsWith{c.err}, redisstore.Config{}))
		for range 2 {
			if _, err := tryIn(t.Context(), s, charge(t, "k")); err == nil {
				t.Fatalf("%v: no error", c.err)
			}
		}
		wantCounted(t, s, c.kind, 2)
		if stats := redisStats(t, s); len(stats.Errors) != 18 || stats.LastError == "" || stats.LastErrorAt.IsZero() {
			t.Errorf("%v: %+v", c.err, stats)
		}
	}
}

// wantCounted checks that s has counted n errors, all of one kind.
func wantCounted(t *testing.T, s *redisstore.Store, kind string, n int64) {
	t.Helper()
	var total int64
	errors := redisStats(t, s).Errors
	for _, n := range errors {
		total += n
	}
	if errors[kind] != n || total != n {
		t.Errorf("%v are counted, want %d of %s", errors, n, kind)
	}
}

type timesOut struct{}

func (timesOut) Error() string   { return "i/o timeout" }
func (timesOut) Timeout() bool   { return true }
func (timesOut) Temporary() bool { return true }

func TestTheTextOfTheLastErrorIsCutAndEscaped(t *testing.T) {
	s := ratelimit.Must(redisstore.New(failsWith{redisError("ERR <b>\x1b[2J" + strings.Repeat("x", 10_000))}, redisstore.Config{}))
	_, _ = try(s, charge(t, "k"))
	if text := redisStats(t, s).LastError; len(text) > 300 || strings.ContainsRune(text, 0x1b) || !strings.Contains(text, "ERR <b>") {
		t.Errorf("%q", text)
	}
}

// Calls whose keys are at two masters of a Cluster are sent again, and count once.
func TestStatsOfCallsThatAreSentAgain(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	s := ratelimit.Must(redisstore.New(cluster.Client(), redisstore.Config{Prefix: "again", MaxDenials: -1}))
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
			if _, err := tryFor(patient, s, here, there); err == nil || !strings.Contains(err.Error(), "TRYAGAIN") {
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
	s := ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{MaxDenials: -1}))
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
				take(t, s, charge(t, fmt.Sprint(i%3*g)))
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
