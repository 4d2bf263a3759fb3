package linearizable_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

const slotsOf, tokensOf = 3, 30

// A slotCall is a call of one of two replicas for slots, or for slots and tokens.
type slotCall struct {
	replica int
	charges []store.Charge
}

// holdings are the slots that each replica holds, and the tokens that were taken, while time stands still.
type holdings struct {
	held  [2]int64
	taken int64
}

// after reports whether a call may be told out as the only one, and what holds then. A release reaches other replicas a moment
// later. So a replica may be refused a slot that another one has released: alone reports that there is none.
func (h holdings) after(call slotCall, out outcome, alone bool) (bool, holdings) {
	held := &h.held[call.replica]
	if call.charges[0].Cost < 0 {
		*held--
		return out.ok && out.states[0].Allowed && !out.states[0].Lost, h
	}
	free := slotsOf - h.held[0] - h.held[1]
	fits := [2]bool{free > 0, tokensOf-h.taken > 0}
	if told := out.states[0].Allowed; fits[0] && !told && !alone {
		fits[0] = false
	}
	shadow, both := call.charges[0].Shadow, len(call.charges) == 2
	ok := (fits[0] || shadow) && (fits[1] || !both)
	if out.ok != ok || out.states[0].Allowed != fits[0] || both && out.states[1].Allowed != fits[1] {
		return false, h
	}
	if ok && fits[0] {
		*held++
		if left := out.states[0].Remaining; alone && left != free-1 || left > free-1 {
			return false, h
		}
	}
	if ok && both {
		h.taken++
		return out.states[1].Remaining == tokensOf-h.taken, h
	}
	return true, h
}

func TestConcurrentHistoriesOfSlotsAreLinearizable(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	t.Run("in memory", func(t *testing.T) {
		checkSlots(t, func() []store.Store {
			s := ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
			t.Cleanup(func() { s.Close() })
			return []store.Store{s}
		})
	})
	client := redistest.Start(t).ClientOptions(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	for name, cfgs := range map[string][]redisstore.Config{
		"by default":         {{}},
		"calls of their own": {{MaxBatch: 1, MaxInFlight: 16}},
		"two replicas":       {{MaxBatch: 1, MaxInFlight: 16}, {MaxInFlight: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			checkSlots(t, func() (stores []store.Store) {
				prefix := prefix()
				for _, cfg := range cfgs {
					cfg.Clock, cfg.Prefix = clock, prefix
					stores = append(stores, ratelimit.Must(redisstore.New(client, cfg)))
				}
				return stores
			})
		})
	}
}

// checkSlots checks histories of one replica, or two.
func checkSlots(t *testing.T, open func() []store.Store) {
	t.Helper()
	seeds, denied := testsize.Of(12, 60), 0
	for seed := range uint64(seeds) {
		stores := open()
		history := recordSlots(t, stores, seed)
		for _, op := range history {
			if out := op.Output.(outcome); !out.ok {
				denied++
			}
		}
		model := porcupine.Model{
			Init: func() any { return holdings{} },
			Step: func(state, input, output any) (bool, any) {
				return state.(holdings).after(input.(slotCall), output.(outcome), len(stores) == 1)
			},
		}
		if result := porcupine.CheckOperationsTimeout(model, history, time.Minute); result != porcupine.Ok {
			t.Fatalf("seed %d: the check says %v", seed, result)
		}
	}
	if denied < 8*seeds {
		t.Errorf("only %d calls were denied", denied)
	}
}

// recordSlots lets many take and release slots at once, and returns what they were told and when. Each caller releases only
// slots that it has taken.
func recordSlots(t *testing.T, stores []store.Store, seed uint64) (history []porcupine.Operation) {
	t.Helper()
	const callers, calls = 10, 8
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	slots, err := store.NewConcurrency(slotsOf)
	if err != nil {
		t.Fatal(err)
	}
	take := store.Charge{Policy: "slots", Key: "k", Limit: slots, Cost: 1}
	token := store.Charge{Policy: "tokens", Key: "k", Limit: limit(t, 1, month, tokensOf), Cost: 1}
	begin := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id := range callers {
		r := rand.New(rand.NewPCG(seed, uint64(id)))
		wg.Go(func() {
			taken := 0
			for range calls {
				call := slotCall{replica: id % len(stores), charges: []store.Charge{take}}
				switch n := r.IntN(10); {
				case taken > 0 && n < 5:
					call.charges[0].Cost = -1
					taken--
				case n < 6:
					call.charges = append(call.charges, token)
				case n == 6:
					call.charges[0].Shadow = true
				case n == 7:
					call.charges[0].MaxWait = time.Second
				}
				op, out := porcupine.Operation{ClientId: id, Input: call, Call: int64(time.Since(begin))}, outcome{}
				var err error
				out.ok, err = stores[call.replica].Take(ctx, call.charges, out.states[:])
				op.Return, op.Output = int64(time.Since(begin)), out
				if err != nil {
					t.Error(err)
					return
				}
				if out.ok && call.charges[0].Cost > 0 && out.states[0].Allowed {
					taken++
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}
