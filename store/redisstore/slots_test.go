package redisstore_test

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// slot returns a charge of one of n slots.
func slot(t testing.TB, key string, n int64) store.Charge {
	t.Helper()
	return store.Charge{Policy: "slots", Key: key, Limit: ratelimit.Must(store.NewConcurrency(n)), Cost: 1}
}

// release releases one of the slots of c, and reports whether it was lost.
func release(t *testing.T, s store.Store, c store.Charge) (lost bool) {
	t.Helper()
	return take(t, s, costs(c, -1)).Lost
}

// heldBy returns the slots of a key that are held, by holder. Those of 0 count as none.
func heldBy(t testing.TB, client redis.Cmdable, key string) (all int64, counts map[string]int64) {
	t.Helper()
	seconds, err := client.Time(context.Background()).Result()
	if err != nil {
		t.Error(err)
	}
	fields, err := client.HGetAll(context.Background(), "ratelimit:{"+key+"}:slots").Result()
	if err != nil {
		t.Error(err)
	}
	counts = make(map[string]int64)
	for field, text := range fields {
		if holder, ok := strings.CutPrefix(field, "held_by:"); ok {
			var count, ends, sequence int64
			if _, err := fmt.Sscan(text, &count, &ends, &sequence); err != nil {
				t.Errorf("%s of %s: %v", text, holder, err)
			}
			if count > 0 && ends > seconds.UnixMicro() {
				counts[holder] = count
				all += count
			}
		}
	}
	return all, counts
}

// wantHeld waits until each Store holds that many slots of a key, and nobody else any.
func wantHeld(t *testing.T, client redis.Cmdable, key string, want map[*redisstore.Store]int64) {
	t.Helper()
	until(t, fmt.Sprint("held: ", want), func() bool {
		all, counts := heldBy(t, client, key)
		for s, n := range want {
			if _, _, holder := redisstore.Holdings(s); counts[holder] != n {
				return false
			}
			all -= n
		}
		return all == 0
	})
}

// Two Stores share three slots. Their slots outlast many leases. After the releases, nothing is left behind.
func TestSlotsAreHeldUntilTheyAreReleased(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	for name, wrap := range map[string]func(*redisstore.Store) *redisstore.Store{
		"take_slot.lua": func(s *redisstore.Store) *redisstore.Store { return s }, "take.lua": redisstore.OnlyTake, "either": redisstore.EitherScript,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all [2]*redisstore.Store
			for i := range all {
				all[i] = wrap(open(t, client, redisstore.Config{SlotLease: time.Second}))
			}
			a, b, c := all[0], all[1], slot(t, name, 3)
			for i := range int64(3) {
				if state := take(t, a, c); !state.Allowed || state.Remaining != 2-i {
					t.Fatalf("slot %d: %+v", i, state)
				}
			}
			for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if state := take(t, b, c); state.Allowed || state.RetryAfter != time.Second || state.Remaining != 0 {
					t.Fatalf("a fourth slot: %+v", state)
				}
			}
			if kept, err := a.Inspect(t.Context(), c.Policy, c.Key); err != nil || kept.Limit != c.Limit || kept.Credits != 0 {
				t.Errorf("Inspect: %+v, %v", kept, err)
			}
			release(t, a, c)
			wantHeld(t, client, name, map[*redisstore.Store]int64{a: 2})
			takeAll(t, b, c)
			wantHeld(t, client, name, map[*redisstore.Store]int64{a: 2, b: 1})
			if got := a.Stats().Slots.Held["slots"]; got != 2 {
				t.Errorf("Stats count %d slots", got)
			}
			for _, s := range []*redisstore.Store{a, a, b} {
				if release(t, s, c) {
					t.Error("a slot was lost")
				}
			}
			if !release(t, b, c) {
				t.Error("one was released that was not held")
			}
			until(t, "nothing is left of the key", func() bool {
				return client.Exists(t.Context(), "ratelimit:{"+name+"}:slots").Val() == 0
			})
			until(t, "nothing is left in the Stores", func() bool {
				ours, _, _ := redisstore.Holdings(a)
				theirs, _, _ := redisstore.Holdings(b)
				return ours+theirs == 0
			})
		})
	}
}

// In an outage, others can take the slots of a Store only after the lease. If Redis has forgotten them, they are restored.
func TestSlotsAfterFaults(t *testing.T) {
	const lease = time.Second
	for _, tt := range []struct {
		name  string
		fault func(server *redistest.Server, proxy *redistest.Proxy)
		over  func(server *redistest.Server, proxy *redistest.Proxy)
		waits time.Duration // between these
		taken bool          // the other Store takes the slots meanwhile, and keeps them
	}{
		{name: "FLUSHALL", fault: func(s *redistest.Server, _ *redistest.Proxy) { s.Do("FLUSHALL") }},
		{name: "a restart", fault: func(s *redistest.Server, _ *redistest.Proxy) { s.Kill(); s.Restart() }},
		{name: "a pause longer than the lease", fault: func(s *redistest.Server, _ *redistest.Proxy) { s.Pause() },
			over: func(s *redistest.Server, _ *redistest.Proxy) { s.Resume() }, waits: 2 * lease},
		{name: "lost replies for longer than the lease", fault: func(_ *redistest.Server, p *redistest.Proxy) { p.DropReplies() },
			over: func(_ *redistest.Server, p *redistest.Proxy) { p.Pass() }, waits: 2 * lease},
		{name: "lost connections", fault: func(_ *redistest.Server, p *redistest.Proxy) { p.Cut() }, waits: lease},
		{name: "a partition shorter than the lease", fault: func(_ *redistest.Server, p *redistest.Proxy) { p.BlackHole() },
			over: func(_ *redistest.Server, p *redistest.Proxy) { p.Pass() }, waits: lease / 3},
		{name: "a partition longer than the lease", fault: func(_ *redistest.Server, p *redistest.Proxy) { p.BlackHole() },
			over: func(_ *redistest.Server, p *redistest.Proxy) { p.Pass() }, waits: 3 * lease, taken: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			var log safeLog
			a := open(t, server.ClientOptions(func(o *redis.Options) { o.Addr = proxy.Addr() }), redisstore.Config{
				SlotLease: lease, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			b := open(t, server.Client(), redisstore.Config{SlotLease: lease})
			c := slot(t, "k", 3)
			takeAll(t, a, c)
			takeAll(t, a, c)
			tt.fault(server, proxy)
			held := map[*redisstore.Store]int64{a: 2}
			if tt.taken {
				until(t, "the lease is over", func() bool { ok, _ := tryFor(patient, b, costs(c, 2)); return ok })
				held = map[*redisstore.Store]int64{b: 2}
			}
			time.Sleep(tt.waits)
			if tt.over != nil {
				tt.over(server, proxy)
			}
			wantHeld(t, server.Client(), "k", held)
			until(t, "a has learned it", func() bool { return (a.Stats().Slots.Lost["slots"] == 2) == tt.taken })
			for range 2 {
				if release(t, a, c) != tt.taken {
					t.Errorf("lost: %t, want %t", !tt.taken, tt.taken)
				}
			}
			delete(held, a)
			wantHeld(t, server.Client(), "k", held)
			if logged := strings.Contains(log.String(), "policy=slots slots=2"); logged != tt.taken {
				t.Errorf("logged: %q", log.String())
			}
		})
	}
}

func TestACallForSlotsNamesTheRightsThatItNeeds(t *testing.T) {
	server := redistest.Start(t)
	if !server.HasACL() {
		return
	}
	buckets := strings.Fields("~ratelimit:* -@all +evalsha +eval +time +hmget +hset +pttl +pexpire")
	s := open(t, limiter(server, buckets...), redisstore.Config{})
	takeAll(t, s, charge(t, "k"))
	if ok, err := tryFor(patient, s, slot(t, "k", 3)); ok || err == nil || !strings.Contains(err.Error(), "+hgetall +hdel") {
		t.Errorf("ok %t, error %v", ok, err)
	}
	permit(server, append(buckets, "+hgetall", "+hdel")...)
	takeAll(t, s, slot(t, "k", 3))
	release(t, s, slot(t, "k", 3))
	wantHeld(t, server.Client(), "k", nil)
}

// A safeLog is a buffer that a test reads while something is logged.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A process that was copied holds its slots under another name than the copy. A slot of which there are two by that may be lost.
func TestACopiedHolderTakesAnotherName(t *testing.T) {
	client := redistest.Start(t).Client()
	for range testsize.Of(20, 1000) {
		a, b := open(t, client, redisstore.Config{Logger: quiet}), open(t, client, redisstore.Config{Logger: quiet})
		c := slot(t, "k", 4)
		takeAll(t, a, c)
		redisstore.Clone(b, a)
		var all sync.WaitGroup
		for _, s := range []*redisstore.Store{a, b} {
			for range 6 {
				all.Go(func() {
					if _, err := tryFor(patient, s, c); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		_, ours, name := redisstore.Holdings(a)
		_, theirs, other := redisstore.Holdings(b)
		if ours+theirs > 4 || ours+theirs < 3 || name == other {
			t.Fatalf("%s holds %d, and %s holds %d", name, ours, other, theirs)
		}
		if _, counts := heldBy(t, client, "k"); counts[name] != ours || counts[other] != theirs {
			t.Fatalf("%v are held, want %d by %s and %d by %s", counts, ours, name, theirs, other)
		}
		a.Close()
		b.Close()
		client.FlushAll(t.Context())
	}
}

// Many slots cost few calls, and no call waits for their renewal.
func TestRenewalsOfManySlots(t *testing.T) {
	const slots, lease = 10_000, 3 * time.Second
	server := redistest.Start(t)
	client := server.Client()
	s := open(t, client, redisstore.Config{SlotLease: lease})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range slots / 50 {
				takeAll(t, s, slot(t, strconv.Itoa(i*1000+j), 1))
			}
		})
	}
	all.Wait()
	time.Sleep(lease / 3) // some of them are renewed in the first second, one by one
	server.Do("CONFIG", "RESETSTAT")
	begin := time.Now()
	time.Sleep(2 * lease)
	calls := commandCalls(t, client, "evalsha")
	if most := int(50 * time.Since(begin).Seconds()); calls > most || calls == 0 {
		t.Errorf("%d calls in %v, want at most %d", calls, time.Since(begin), most)
	}
	if n := len(client.Keys(t.Context(), "*").Val()); n != slots {
		t.Errorf("%d slots are held, want %d", n, slots)
	}
	if lost := s.Stats().Slots.Lost; len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	if err := s.Close(); err != nil { // while all are held
		t.Error(err)
	}
}

// A Store sends renewals while it holds slots, and nothing else. A process that was stopped between the decision to renew and
// the write says that it is late.
func TestRenewalsInABubble(t *testing.T) {
	w := &wire{}
	onWire(t, w, redisstore.Config{}, func(t *testing.T, s *redisstore.Store) {
		sent := func() int {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.sent
		}
		c := slot(t, "k", 1000)
		takeAll(t, s, c)
		time.Sleep(time.Minute)
		if n := sent(); n < 12 || n > 14 {
			t.Errorf("%d calls to hold a slot for a minute with a lease of 15 seconds", n)
		}
		release(t, s, c)
		time.Sleep(time.Second)
		after := sent()
		if time.Sleep(time.Hour); sent() != after {
			t.Errorf("%d calls without a slot", sent()-after)
		}
		s.Close()
	})
}

func TestAClaimIsLateIfTheProcessWasStoppedBeforeItIsWritten(t *testing.T) {
	var mu sync.Mutex
	var claims []string
	var stop atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		client.AddHook(hook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			time.Sleep(time.Duration(stop.Load()))
			written, err := cmd.Args()[5].(encoding.BinaryMarshaler).MarshalBinary()
			mu.Lock()
			claims = append(claims, string(written))
			mu.Unlock()
			cmd.(interface{ SetVal(int64) }).SetVal(2*1 + 1)
			return err
		}))
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
		takeAll(t, s, slot(t, "k", 3))
		time.Sleep(6 * time.Second)
		stop.Store(int64(20 * time.Second))
		time.Sleep(10 * time.Second)
		stop.Store(0)
		time.Sleep(20 * time.Second)
		s.Close()
	})
	if all := strings.Join(claims, "\n"); !strings.Contains(all, " 1 0 fresh 15000000 -1") || !strings.Contains(all, " 2 1 fresh ") || !strings.Contains(all, " 3 1 late ") {
		t.Errorf("claims: %q", claims)
	}
}

// faulty is a hook that loses commands and replies, and has some arrive late or twice. It ends when the test does.
func faulty(t *testing.T, calm *atomic.Bool) redis.Hook {
	var late sync.WaitGroup
	t.Cleanup(late.Wait)
	lost := errors.New("connection reset")
	return hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
		if !callsScript(cmd) || calm.Load() {
			return send(ctx, cmd)
		}
		args := make([]any, len(cmd.Args()))
		for i, arg := range cmd.Args() {
			args[i] = arg
			if m, ok := arg.(encoding.BinaryMarshaler); ok {
				args[i], _ = m.MarshalBinary()
			}
		}
		again := func() {
			late.Go(func() {
				time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
				_ = send(context.Background(), redis.NewCmd(context.Background(), args...))
			})
		}
		switch rand.IntN(20) {
		case 0:
			return lost
		case 1:
			again()
			return lost
		case 2:
			_ = send(ctx, cmd)
			cmd.SetErr(lost)
			return lost
		case 3:
			defer again() // with the same sequence
		case 4:
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		}
		return send(ctx, cmd)
	})
}

// Callers that leave at any moment, commands that are lost, late or repeated: Redis never grants a slot too many, and nothing
// is held in the end.
func TestSlotsSoak(t *testing.T) {
	clients := map[string]soakStart{
		"a server": func(t *testing.T) (func(redis.Hook) redisstore.Client, redis.Cmdable, func()) {
			server := redistest.Start(t)
			return func(h redis.Hook) redisstore.Client {
				client := server.ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = rand.IntN(2) == 0 })
				client.AddHook(h)
				return client
			}, server.Client(), nil
		},
		"a Cluster": func(t *testing.T) (func(redis.Hook) redisstore.Client, redis.Cmdable, func()) {
			cluster := redistest.SharedCluster(t, 3)
			return func(h redis.Hook) redisstore.Client {
				client := cluster.Client()
				client.AddHook(h)
				return client
			}, cluster.Client(), nil
		},
		"a Cluster whose slots move": func(t *testing.T) (func(redis.Hook) redisstore.Client, redis.Cmdable, func()) {
			cluster := redistest.StartCluster(t, 2)
			return func(h redis.Hook) redisstore.Client {
				client := cluster.Client()
				client.AddHook(h)
				return client
			}, cluster.Client(), func() { moveSlot(cluster, strconv.Itoa(rand.IntN(3))) }
		},
	}
	for where, start := range clients {
		for form, crossSlot := range forms {
			if where == "a server" && crossSlot == redisstore.CrossSlotNever {
				continue
			}
			t.Run(where+", "+form, func(t *testing.T) { soakSlots(t, start, crossSlot) })
		}
	}
}

// A soakStart starts servers. It returns clients with a hook, one for an observer, and what is done to the servers meanwhile.
type soakStart func(t *testing.T) (dial func(redis.Hook) redisstore.Client, observer redis.Cmdable, disturb func())

// moveSlot moves the hash slot of a key to the other master.
func moveSlot(c *redistest.Cluster, key string) {
	slot := c.Slot(key)
	m := c.StartMigration(slot, 1-c.Owner(slot))
	time.Sleep(20 * time.Millisecond)
	for m.MoveKeys(1) > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	m.Finish()
}

func soakSlots(t *testing.T, start soakStart, crossSlot redisstore.CrossSlot) {
	const n, keys, lease = 5, 3, 2 * time.Second
	dial, observer, disturb := start(t)
	var calm, over atomic.Bool
	var all, observing sync.WaitGroup
	var held [keys]atomic.Int64 // by callers
	var granted, left, denied atomic.Int64
	var stores []*redisstore.Store
	names := make(map[string]bool)
	for range 3 {
		stores = append(stores, open(t, dial(faulty(t, &calm)), redisstore.Config{SlotLease: lease, CrossSlot: crossSlot, Logger: quiet, MaxDenials: -1}))
		_, _, name := redisstore.Holdings(stores[len(stores)-1])
		names[name] = true
	}
	many := ratelimit.Must(store.NewLimit(1_000_000, time.Second, 1_000_000))
	few := ratelimit.Must(store.NewLimit(1, time.Millisecond, 5))
	end := time.Now().Add(time.Duration(testsize.Of(1500, 20_000)) * time.Millisecond)
	for i := range 24 {
		s := stores[i%len(stores)]
		all.Go(func() {
			for time.Now().Before(end) {
				k := rand.IntN(keys)
				charges := []store.Charge{slot(t, strconv.Itoa(k), n)}
				switch rand.IntN(4) {
				case 0:
					charges = append(charges, store.Charge{Policy: "rate", Key: strconv.Itoa(i), Limit: many, Cost: 1})
				case 1:
					charges = append(charges, store.Charge{Policy: "rate", Key: "few", Limit: few, Cost: 1})
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20_000))*time.Microsecond)
				if rand.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(2_000))*time.Microsecond, cancel)
				}
				ok, err := s.Take(ctx, charges, make([]store.State, len(charges)))
				cancel()
				switch {
				case err != nil:
					left.Add(1)
				case !ok:
					denied.Add(1)
				default:
					granted.Add(1)
					if h := held[k].Add(1); h > n {
						t.Errorf("callers hold %d slots", h)
					}
					time.Sleep(time.Duration(rand.IntN(5_000)) * time.Microsecond)
					held[k].Add(-1)
					if release(t, s, charges[0]) {
						t.Error("a slot was lost")
					}
				}
			}
		})
	}
	observing.Go(func() {
		for !over.Load() {
			for k := range keys {
				if all, counts := heldBy(t, observer, strconv.Itoa(k)); all > n {
					t.Errorf("%v hold %d slots", counts, all)
				}
			}
		}
	})
	for disturb != nil && time.Now().Before(end) {
		disturb()
	}
	all.Wait()
	calm.Store(true)
	for k := range keys {
		wantHeld(t, observer, strconv.Itoa(k), nil)
	}
	over.Store(true)
	observing.Wait()
	until(t, "the Stores keep nothing", func() bool {
		kept := 0
		for _, s := range stores {
			n, _, name := redisstore.Holdings(s)
			if kept += n; !names[name] {
				t.Fatalf("%s is another name", name)
			}
		}
		return kept == 0
	})
	t.Logf("%d granted, %d denied, %d failed", granted.Load(), denied.Load(), left.Load())
	if granted.Load() < 100 || denied.Load() < 10 || left.Load() < 100 {
		t.Error("too few")
	}
}
