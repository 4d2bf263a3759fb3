package denialcache_test

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
)

// held is a Store whose calls are carried out, and replied to, when the test says.
type held struct{ store.Store }

type flightKey struct{}

// A request is a call of Take, or of Block for the bucket of its first charge.
type request struct {
	charges []store.Charge
	block   *store.Block
}

func take(charges ...store.Charge) request { return request{charges: charges} }

func setBlock(c store.Charge, d time.Duration) request {
	return request{[]store.Charge{c}, &store.Block{For: d}}
}

// put makes the call to s.
func (r request) put(ctx context.Context, s store.Store, states []store.State) (bool, error) {
	if r.block == nil {
		return s.Take(ctx, r.charges, states)
	}
	_, err := store.SetBlock(ctx, s, r.charges[0].Policy, r.charges[0].Key, *r.block)
	return err == nil, err
}

// A flight is a call under way to a held Store.
type flight struct {
	request
	arrived chan bool // true: at the store. false: it was answered without
	execute chan struct{}
	reply   chan struct{}
	done    chan struct{}

	executed bool
	ok       bool
	states   []store.State
}

func (h held) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return h.put(ctx, take(charges...), states)
}

func (h held) Block(ctx context.Context, policy, key string, b store.Block) (bool, error) {
	_, err := h.put(ctx, setBlock(store.Charge{Policy: policy, Key: key}, b.For), nil)
	return false, err
}

func (h held) put(ctx context.Context, r request, states []store.State) (bool, error) {
	f := ctx.Value(flightKey{}).(*flight)
	f.arrived <- true
	<-f.execute
	ok, err := r.put(context.Background(), h.Store, states)
	f.reply <- struct{}{}
	<-f.reply
	return ok, err
}

// A sky is a Store with flights, and a plain one that carries out the same calls in the same order.
type sky struct {
	*testing.T
	store   store.Store
	plain   store.Store
	other   store.Limit // than that of most calls
	time    time.Time
	flights []*flight
	loose   int // flights that are executed and not replied to
	local   int // calls that were answered without the store
	history []string
}

func newSky(t *testing.T, cfg denialcache.Config, other store.Limit) *sky {
	s := &sky{T: t, other: other, time: time.Date(2026, 5, 23, 10, 20, 30, 123_456_000, time.UTC)}
	cfg.Clock = s.clock
	s.store = ratelimit.Must(denialcache.New(held{teststore.OpenMemory(t, s.clock)}, cfg))
	s.plain = teststore.OpenMemory(t, s.clock)
	return s
}

func (s *sky) clock() time.Time { return s.time }

func (s *sky) note(what string, r request) {
	if r.block != nil {
		what += fmt.Sprint(" block for ", r.block.For)
	}
	for _, c := range r.charges {
		what += fmt.Sprintf(" %s/%s %d at %d", c.Policy, c.Key, c.Cost, c.Limit.Refill)
	}
	s.history = append(s.history, what)
}

// send begins a call, and returns nil if it was answered without the store, as by it.
func (s *sky) send(r request) *flight {
	f := &flight{
		request: r,
		states:  make([]store.State, len(r.charges)),
		arrived: make(chan bool),
		execute: make(chan struct{}),
		reply:   make(chan struct{}),
		done:    make(chan struct{}),
	}
	go func() {
		defer close(f.done)
		var err error
		if f.ok, err = r.put(context.WithValue(context.Background(), flightKey{}, f), s.store, f.states); err != nil {
			s.Error(err)
		}
		close(f.arrived)
	}()
	if <-f.arrived {
		s.note("sent", r)
		s.flights = append(s.flights, f)
		return f
	}
	s.local++
	s.note("answered locally", r)
	s.compare(f)
	return nil
}

// compare holds what a flight was told against the plain store. What is under way as yet may be missing
// from numbers, but never makes a refusal wrong.
func (s *sky) compare(f *flight) {
	want := make([]store.State, len(f.charges))
	ok, err := f.put(context.Background(), s.plain, want)
	if err != nil {
		s.Fatal(err)
	}
	if f.ok != ok || s.loose == 0 && !slices.Equal(f.states, want) {
		s.Fatalf("%t %+v\nwant %t %+v\nafter %q", f.ok, f.states, ok, want, s.history)
	}
}

// step has a flight be executed, or replied to if it was, or does nothing if it is over.
//
// Of a charge at another limit nothing is promised before its reply, which therefore follows at once.
func (s *sky) step(f *flight) {
	if !slices.Contains(s.flights, f) {
		return
	}
	if !f.executed {
		s.note("executed", f.request)
		f.executed = true
		f.execute <- struct{}{}
		<-f.reply
		if _, err := f.put(context.Background(), s.plain, make([]store.State, len(f.charges))); err != nil {
			s.Fatal(err)
		}
		s.loose++
		if !slices.ContainsFunc(f.charges, func(c store.Charge) bool { return c.Limit == s.other && c.Cost > 0 }) {
			return
		}
	}
	s.note("replied", f.request)
	f.reply <- struct{}{}
	<-f.arrived
	<-f.done
	s.loose--
	s.flights = slices.DeleteFunc(s.flights, func(other *flight) bool { return other == f })
}

// whole makes a call from begin to end.
func (s *sky) whole(r request) {
	if f := s.send(r); f != nil {
		s.step(f)
		s.step(f)
	}
}

// Each order in which a denial and something that changes its bucket can be sent, executed and replied to,
// with a call, or none, after each of these six. Each of these is answered as by a store without a cache.
func TestDenialsInEveryOrder(t *testing.T) {
	slow, fast := teststore.Limit(t, 6, time.Minute, 5), teststore.Limit(t, 1_000_000, time.Second, 1_000_000)
	local, stride := 0, testsize.Of(13, 1)
	for name, c := range map[string]request{
		"a refund":                   take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: -3}),
		"a reset":                    take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: math.MinInt64}),
		"a charge":                   take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 1}),
		"what is owed":               take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 9, Owed: true}),
		"a settlement":               take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 9, Settles: true}),
		"owed at another limit":      take(store.Charge{Policy: "p", Key: "k", Limit: fast, Cost: 2_000_000, Owed: true}),
		"a charge at another limit":  take(store.Charge{Policy: "p", Key: "k", Limit: fast, Cost: 1}),
		"a denial at another limit":  take(store.Charge{Policy: "p", Key: "k", Limit: fast, Cost: 2_000_000}),
		"a denial":                   take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 4}),
		"a peek at another limit":    take(store.Charge{Policy: "p", Key: "k", Limit: fast}),
		"a refund at another limit":  take(store.Charge{Policy: "p", Key: "k", Limit: fast, Cost: -1}),
		"a charge of another bucket": take(store.Charge{Policy: "q", Key: "k", Limit: slow, Cost: 1}),
		"a block":                    setBlock(store.Charge{Policy: "p", Key: "k", Limit: slow}, time.Minute),
		"blocked, and a shorter one": setBlock(store.Charge{Policy: "p", Key: "k", Limit: slow}, time.Second),
		"blocked, and its end":       setBlock(store.Charge{Policy: "p", Key: "k", Limit: slow}, 0),
		"blocked, and a reset":       take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: math.MinInt64}),
		"blocked, and a refund":      take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: -3}),
	} {
		t.Run(name, func(t *testing.T) {
			for order := range 1 << 6 { // bit i: event i is the denial's
				if bits.OnesCount(uint(order)) != 3 {
					continue
				}
				for known := range 2 {
					for probes := 0; probes < 1<<6; probes += stride { // bit i: a call after event i
						s := newSky(t, denialcache.Config{MaxKeys: 1}, fast)
						denied := store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 5}
						if strings.HasPrefix(name, "blocked") {
							denied.Cost = 4 // which it can pay when the block ends; a State of a whole burst leaves a doubt
							s.whole(setBlock(denied, 40*time.Second))
						} else {
							s.whole(take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 3}))
						}
						s.time = s.time.Add(900 * time.Millisecond) // in which the fast one refills much
						if known == 1 {
							s.whole(take(denied))
						}
						calls := [2]request{c, take(denied)}
						var flights [2]*flight
						var sent [2]bool
						for event := range 6 {
							who := order >> event & 1
							if !sent[who] {
								sent[who], flights[who] = true, s.send(calls[who])
							} else {
								s.step(flights[who])
							}
							if probes>>event&1 == 1 {
								s.whole(take(denied))
							}
						}
						s.whole(take(denied))
						s.whole(take(denied))
						s.whole(take(store.Charge{Policy: "p", Key: "k", Limit: slow, Cost: 1}))
						s.whole(take(denied))
						local += s.local
					}
				}
			}
		})
	}
	if t.Logf("%d calls were answered without the store", local); local < 10_000/stride {
		t.Errorf("want at least %d", 10_000/stride)
	}
}

// The same at random: more calls at once, of one or two buckets, two of which share a slot.
func TestDenialsInRandomOrder(t *testing.T) {
	slow, fast := teststore.Limit(t, 6, time.Minute, 5), teststore.Limit(t, 100, time.Second, 7)
	local := 0
	seeds := testsize.Of(120, 1000)
	for seed := range uint64(seeds) {
		rand := rand.New(rand.NewPCG(seed, 0))
		s := newSky(t, denialcache.Config{MaxKeys: 2}, fast)
		for range 200 {
			switch n := rand.IntN(10); {
			case n < 4 && len(s.flights) < 5:
				charges := make([]store.Charge, 1+rand.IntN(4)/3)
				policy := rand.IntN(2)
				for i := range charges {
					charges[i] = store.Charge{Policy: fmt.Sprint("p", (policy+i)%2), Key: "k", Limit: slow, Cost: 1 + rand.Int64N(5), Shadow: rand.IntN(8) == 0}
					if rand.IntN(12) == 0 {
						charges[i].Cost = -rand.Int64N(3)
					}
					if rand.IntN(12) == 0 {
						charges[i].Limit = fast
					}
					charges[i].Owed = rand.IntN(16) == 0
				}
				switch rand.IntN(30) {
				case 0:
					s.send(setBlock(charges[0], max(0, time.Duration(rand.IntN(int(2*time.Second)))-time.Second/4)))
				case 1:
					s.send(take(store.Charge{Policy: charges[0].Policy, Key: "k", Limit: charges[0].Limit, Cost: 2, Settles: true}))
				default:
					s.send(take(charges...))
				}
			case n < 9 && len(s.flights) > 0:
				s.step(s.flights[rand.IntN(len(s.flights))])
			case len(s.flights) == 0:
				s.time = s.time.Add(time.Duration(rand.IntN(int(200 * time.Millisecond))))
			}
		}
		for len(s.flights) > 0 {
			s.step(s.flights[0])
		}
		local += s.local
	}
	if t.Logf("%d calls were answered without the store", local); local < 5*seeds {
		t.Errorf("want at least %d", 5*seeds)
	}
}
