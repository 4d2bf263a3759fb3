package redisstore_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func ring(t *testing.T) *redis.Ring {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
		"a": redistest.Start(t).Addr(),
		"b": redistest.Start(t).Addr(),
	}})
	t.Cleanup(func() { ring.Close() })
	return ring
}

// Calls over several slots are answered as in memory, where all is one step, as long as nobody else is under
// way, time goes on, and limits stay: what is taken and given back leaves its time and its limit behind.
func TestCallsOverSeveralSlotsAreAnsweredAsInOne(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	for name, tt := range map[string]struct {
		client redisstore.Client
		how    redisstore.CrossSlot
	}{
		"cluster":               {cluster.Client(), redisstore.CrossSlotAlways},
		"cluster, slot by slot": {cluster.Client(), redisstore.CrossSlotNever},
		"ring":                  {ring(t), redisstore.CrossSlotAuto},
		// As a proxy before a cluster, this is a client of one server that wants one slot a command.
		"proxy": {dial(t, redistest.SharedCluster(t, 1).Addrs()[0]), redisstore.CrossSlotAuto},
	} {
		t.Run(name, func(t *testing.T) {
			var nanos atomic.Int64
			nanos.Store(time.Date(2026, 5, 23, 10, 0, 0, 0, time.UTC).UnixNano())
			clock := func() time.Time { return time.Unix(0, nanos.Load()) }
			s := ratelimit.Must(redisstore.New(tt.client, redisstore.Config{Prefix: prefix(), Clock: clock, CrossSlot: tt.how, Logger: quiet}))
			model := ratelimit.Must(memstore.New(memstore.Config{Clock: clock}))
			defer model.Close()
			r := rand.New(rand.NewPCG(8, 0))
			limits := []store.Limit{limit(t, 1, month, 20), limit(t, 7, time.Second, 5_000), limit(t, 1, time.Second, 600), limit(t, 333, time.Second, 200_000)}
			steps, refused := testsize.Of(250, 3000), 0
			for step := range steps {
				nanos.Add(r.Int64N(int64(time.Second)) << r.IntN(8))
				if r.IntN(3) == 0 {
					redisstore.ForgetRefusals(s) // or all calls would be taken in turn
				}
				charges := make([]store.Charge, 1+r.IntN(4))
				for i, k := range r.Perm(8)[:len(charges)] {
					l := limits[k%len(limits)]
					burst := l.Capacity / l.Unit
					charges[i] = store.Charge{Policy: fmt.Sprint("p", k), Key: fmt.Sprint("k", k), Limit: l, Cost: 1 + r.Int64N(burst), Shadow: r.IntN(6) == 0}
					switch r.IntN(8) {
					case 0:
						charges[i].Cost = 0
					case 1:
						charges[i].Cost = -charges[i].Cost
					case 2:
						charges[i].Cost = burst + 1
					case 3:
						charges[i].MaxWait = time.Duration(r.Int64N(int64(time.Hour)))
					case 4:
						charges[i].Owed = true
						charges[i].Cost *= 1 + r.Int64N(3)
					}
				}
				got, want := make([]store.State, len(charges)), make([]store.State, len(charges))
				ok, err := s.Take(t.Context(), charges, got)
				if err != nil {
					t.Fatal(err)
				}
				wantOK, _ := model.Take(t.Context(), charges, want)
				if ok != wantOK || !slices.Equal(got, want) {
					t.Fatalf("step %d: %+v\ngot  %t %+v\nwant %t %+v", step, charges, ok, got, wantOK, want)
				}
				if !ok && len(charges) > 1 {
					refused++
				}
			}
			if refused < steps/6 {
				t.Errorf("only %d calls of several charges were refused", refused)
			}
		})
	}
}

func TestAClientThatMeetsCROSSSLOTSendsOneSlotACommandFromThenOnAndLogsItOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cluster := redistest.StartCluster(t, 1)
	s := ratelimit.Must(redisstore.New(dial(t, cluster.Addrs()[0]), redisstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	var wg sync.WaitGroup
	for range 20 {
		for _, key := range strings.Fields("a b c d e f g h") {
			second := charge(t, key+key)
			wg.Go(func() { takeAll(t, s, charge(t, key), second) })
			wg.Go(func() { takeAll(t, s, charge(t, key)) })
		}
	}
	wg.Wait()
	for _, key := range strings.Fields("a b c d e f g h") {
		wantLeft(t, s, 60, charge(t, key)) // two calls of one, twenty times
	}
	if !cluster.RefusesSeveralSlots() {
		if log.Len() > 0 {
			t.Errorf("logged %q of a server that takes keys of several slots", log.String())
		}
	} else if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "hash slot") {
		t.Errorf("logged %q", log.String())
	}
}

func TestACallOverSeveralSlotsGivesBackWhatItTookWhenOneOfThemFails(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	client := cluster.Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	good, bad, empty := charge(t, "good"), charge(t, "bad"), charge(t, "empty")
	if err := client.Set(t.Context(), "ratelimit:{bad}:p", "a string", 0).Err(); err != nil {
		t.Fatal(err)
	}
	take(t, s, costs(empty, 100))
	states := make([]store.State, 3)

	ok, err := s.Take(t.Context(), []store.Charge{good, bad}, states)
	wantRedisError(t, ok, err, "WRONGTYPE")
	wantLeft(t, s, 100, good)

	// What one of them refuses is refused, whatever the others would have said.
	ok, err = s.Take(t.Context(), []store.Charge{good, bad, empty}, states)
	if ok || err != nil || states[0].Remaining != 100 || !states[0].Allowed || !states[1].Degraded || states[2].Allowed {
		t.Errorf("ok %t, error %v, %+v", ok, err, states)
	}
	wantLeft(t, s, 100, good)

	// A shadow vetoes nothing, neither in another slot nor in the same one.
	bad.Shadow = true
	beside := good
	beside.Key, beside.Policy = bad.Key, "beside"
	for _, charges := range [][]store.Charge{{good, bad}, {beside, bad}} {
		ok, err = s.Take(t.Context(), charges, states)
		if !ok || err != nil || states[0].Remaining != 99 || states[1] != (store.State{Allowed: true, Degraded: true}) {
			t.Errorf("ok %t, error %v, %+v", ok, err, states)
		}
	}
}
