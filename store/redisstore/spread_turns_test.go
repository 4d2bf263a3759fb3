package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A turns is a Store in which a call was refused, so that calls over several slots are taken in turn.
type turns struct {
	store                *redisstore.Store
	replies              *barrier      // to its scripts
	direct               *redis.Client // without the barrier
	prefix               string
	scarce, plenty, none store.Charge // of buckets that hold 1 token, 100, and none
}

func newTurns(t *testing.T, addr string) *turns {
	x := &turns{replies: new(barrier), direct: dial(t, addr), prefix: prefix()}
	client := dial(t, addr)
	client.AddHook(x.replies)
	x.store = ratelimit.Must(redisstore.New(client, redisstore.Config{Prefix: x.prefix, MaxDenials: -1, Logger: quiet}))
	x.scarce, x.plenty, x.none = charge(t, "scarce"), charge(t, "plenty"), charge(t, "none")
	x.scarce.Limit, x.none.Limit = limit(t, 1, time.Hour, 1), limit(t, 1, time.Hour, 1)
	take(t, x.store, x.none)
	for range 2 { // the first finds that there are slots
		wantRefused(t, x.store, charge(t, "refused"), x.none)
	}
	x.direct.ConfigResetStat(t.Context())
	return x
}

// untouched checks that no call has written the bucket of c, not even to give back what it took.
func (x *turns) untouched(t *testing.T, c store.Charge) {
	t.Helper()
	if n := x.direct.Exists(t.Context(), x.prefix+":{"+c.Key+"}:p").Val(); n != 0 {
		t.Errorf("%s was written", c.Key)
	}
}

// left checks what the bucket of c holds.
func (x *turns) left(t *testing.T, c store.Charge, want int64) {
	t.Helper()
	wantLeft(t, ratelimit.Must(redisstore.New(x.direct, redisstore.Config{Prefix: x.prefix})), want, c)
}

// A barrier is a hook that can hold up the replies to scripts.
type barrier struct {
	mu   sync.Mutex
	left int           // how many replies it lets pass
	open chan struct{} // closed when all pass; nil: all pass
}

// holdFrom holds up the n-th reply, and those after it, until open is called.
func (b *barrier) holdFrom(n int) (open func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	opened := make(chan struct{})
	b.left, b.open = n-1, opened
	return func() { close(opened) }
}

func (b *barrier) pass(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if !callsScript(cmd) {
			continue
		}
		b.mu.Lock()
		b.left--
		held, open := b.left < 0 && b.open != nil, b.open
		b.mu.Unlock()
		if held {
			<-open
		}
	}
}

func (b *barrier) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *barrier) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer b.pass(cmd)
		return next(ctx, cmd)
	}
}

func (b *barrier) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer b.pass(cmds...)
		return next(ctx, cmds)
	}
}

// until waits until the server has run n scripts since newTurns.
func (x *turns) until(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprint(n, " scripts were run"), func() bool { return commandCalls(t, x.direct, "evalsha") >= n })
}

func TestACallThatIsTakenInTurn(t *testing.T) {
	cluster := redistest.SharedCluster(t, 1)
	if !cluster.RefusesSeveralSlots() {
		return // it is taken in one script
	}
	addr := cluster.Addrs()[0]
	const looks, turn = 2, 1 // scripts of a call of two slots
	type result struct {
		ok  bool
		err error
	}
	// interrupted makes a call, and calls meanwhile when the server has run n scripts of it, before the last reply arrives.
	interrupted := func(t *testing.T, x *turns, ctx context.Context, n int, meanwhile func()) result {
		done := make(chan result, 1)
		open := x.replies.holdFrom(n)
		go func() {
			ok, err := tryIn(ctx, x.store, x.plenty, x.scarce)
			done <- result{ok, err}
		}()
		x.until(t, n)
		meanwhile()
		open()
		return <-done
	}

	t.Run("and is certain to be refused writes nothing", func(t *testing.T) {
		x := newTurns(t, addr)
		ok, states := takeStates(t, x.store, x.plenty, x.none, x.scarce)
		if ok || !states[0].Allowed || states[0].Remaining != 100 || states[1].Allowed || states[1].RetryAfter == 0 || states[2].Remaining != 1 {
			t.Errorf("ok %t, %+v", ok, states)
		}
		x.untouched(t, x.plenty)
		x.untouched(t, x.scarce)
	})
	t.Run("and is certain to be refused by what a bucket can never hold", func(t *testing.T) {
		x := newTurns(t, addr)
		x.scarce.Cost = 2
		if ok, states := takeStates(t, x.store, x.plenty, x.scarce); ok || states[1].RetryAfter != store.Never {
			t.Errorf("ok %t, %+v", ok, states)
		}
		x.untouched(t, x.plenty)
	})
	t.Run("begins with the scarcest bucket", func(t *testing.T) {
		x := newTurns(t, addr)
		r := interrupted(t, x, t.Context(), looks, func() {
			take(t, ratelimit.Must(redisstore.New(x.direct, redisstore.Config{Prefix: x.prefix})), x.scarce)
		})
		if r.ok || r.err != nil {
			t.Errorf("%+v, want a refusal: another took what it had seen", r)
		}
		x.untouched(t, x.plenty)
	})
	t.Run("gives back what it took when a later one refuses", func(t *testing.T) {
		x := newTurns(t, addr)
		r := interrupted(t, x, t.Context(), looks+turn, func() {
			take(t, ratelimit.Must(redisstore.New(x.direct, redisstore.Config{Prefix: x.prefix})), costs(x.plenty, 100))
		})
		if r.ok || r.err != nil {
			t.Errorf("%+v, want a refusal: another took what it had seen", r)
		}
		x.left(t, x.scarce, 1)
		x.left(t, x.plenty, 0)
	})
	t.Run("gives back what it took when its caller leaves", func(t *testing.T) {
		for scripts := looks; scripts <= looks+2*turn; scripts++ {
			x := newTurns(t, addr)
			ctx, leave := context.WithCancel(t.Context())
			if r := interrupted(t, x, ctx, scripts, leave); r.ok || !errors.Is(r.err, context.Canceled) {
				t.Errorf("%+v, want the context's error", r)
			}
			x.store.Close() // waits for it
			x.left(t, x.scarce, 1)
			x.left(t, x.plenty, 100)
		}
	})
	t.Run("is carried out when its store is closed meanwhile", func(t *testing.T) {
		x := newTurns(t, addr)
		var closing sync.WaitGroup
		r := interrupted(t, x, t.Context(), looks, func() {
			closing.Go(func() { x.store.Close() }) // waits for it
			until(t, "it is closed", func() bool { return redisstore.Closed(x.store) })
		})
		if !r.ok || r.err != nil {
			t.Errorf("%+v, want it to be allowed", r)
		}
		closing.Wait()
		x.left(t, x.scarce, 0)
		x.left(t, x.plenty, 99)
	})
	t.Run("fails where a bucket cannot be read, and writes nothing", func(t *testing.T) {
		x := newTurns(t, addr)
		x.direct.Set(t.Context(), x.prefix+":{bad}:p", "a string", 0)
		ok, err := tryFor(10*time.Second, x.store, x.plenty, charge(t, "bad"))
		wantRedisError(t, ok, err, "WRONGTYPE")
		x.untouched(t, x.plenty)

		// What one of them refuses is refused, whatever the others would have said, and a shadow vetoes nothing.
		wantRefused(t, x.store, x.plenty, charge(t, "bad"), x.none)
		shadow := charge(t, "bad")
		shadow.Shadow = true
		takeAll(t, x.store, x.plenty, shadow)
		x.left(t, x.plenty, 99)
	})
	t.Run("after others that failed, too", func(t *testing.T) {
		x := newTurns(t, addr)
		redisstore.ForgetRefusals(x.store)
		x.direct.Set(t.Context(), x.prefix+":{bad}:p", "a string", 0)
		for range 2 {
			ok, err := tryFor(10*time.Second, x.store, x.scarce, charge(t, "bad"))
			wantRedisError(t, ok, err, "WRONGTYPE")
		}
		wantRefused(t, x.store, x.plenty, x.none)
		x.untouched(t, x.plenty)
	})
}

// Calls are admitted, refused, or left by their callers, and taken at once or in turn. In the end, each bucket lacks
// exactly what the admitted calls have paid.
func TestBucketsHoldWhatAdmittedCallsLeft(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	for name, how := range forms {
		t.Run(name, func(t *testing.T) { wantWhatAdmittedCallsLeft(t, cluster, how) })
	}
}

func wantWhatAdmittedCallsLeft(t *testing.T, cluster *redistest.Cluster, how redisstore.CrossSlot) {
	client := cluster.Client()
	now := time.Now()
	cfg := redisstore.Config{
		Prefix: prefix(), MaxDenials: -1, Clock: func() time.Time { return now }, CrossSlot: how, Logger: quiet,
	}
	stores := []*redisstore.Store{openKnown(t, client, cfg), openKnown(t, cluster.Client(), cfg)}
	const buckets, callers, calls = 8, 16, 60
	limits := []store.Limit{limit(t, 1, month, 60), limit(t, 1, month, 800)}
	var masters [buckets]int
	for n := range masters {
		masters[n] = cluster.Owner(cluster.Slot(fmt.Sprint("k", n)))
	}
	bucket := func(n int) store.Charge {
		return store.Charge{Policy: fmt.Sprint("p", n), Key: fmt.Sprint("k", n), Limit: limits[n%len(limits)]}
	}
	var mu sync.Mutex
	var paid [buckets]int64
	var admitted, refused, left int
	var wg sync.WaitGroup
	for id := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(12, uint64(id)))
			s := stores[id%len(stores)]
			for range calls {
				if r.IntN(8) == 0 {
					redisstore.ForgetRefusals(s)
				}
				ctx, leave := context.WithCancel(t.Context())
				leaves := r.IntN(4) == 0
				chosen := r.Perm(buckets)[:1+r.IntN(4)]
				if leaves {
					// What is in one place is one step, which its caller may leave behind.
					for chosen = chosen[:1]; masters[chosen[0]] == masters[chosen[len(chosen)-1]]; {
						chosen = r.Perm(buckets)[:2+r.IntN(3)]
					}
					time.AfterFunc(time.Duration(r.IntN(1000))*time.Microsecond, leave)
				}
				charges := make([]store.Charge, len(chosen))
				for i, n := range chosen {
					charges[i] = bucket(n)
					charges[i].Cost = r.Int64N(4)
					switch r.IntN(8) {
					case 0:
						charges[i].MaxWait = time.Duration(r.IntN(10)) * month
					case 1: // what follows is carried out also if the caller leaves then, so that nobody knows
						charges[i].Shadow = !leaves
					case 2:
						charges[i].Owed = !leaves
					}
				}
				states := make([]store.State, len(charges))
				ok, err := s.Take(ctx, charges, states)
				leave()
				mu.Lock()
				switch {
				case ok:
					admitted++
					for i, n := range chosen {
						if states[i].Allowed {
							paid[n] += charges[i].Cost * charges[i].Limit.Unit
						}
					}
				case err == nil:
					refused++
				case leaves && errors.Is(err, context.Canceled):
					left++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, s := range stores {
		s.Close()
	}
	again := ratelimit.Must(redisstore.New(client, cfg))
	for n := range buckets {
		c := bucket(n)
		if missing := take(t, again, c).ResetAfter.Microseconds() * c.Limit.Refill; missing != paid[n] {
			t.Errorf("bucket %d: %d credits are missing, and %d were paid", n, missing, paid[n])
		}
	}
	t.Logf("%d admitted, %d refused, %d left", admitted, refused, left)
	if admitted < 100 || refused < 100 || left < 20 {
		t.Error("want more of each")
	}
}
