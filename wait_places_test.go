package ratelimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

func TestNoMorePlacesAreTakenThanThereAre(t *testing.T) {
	const most = 3
	s := newWaitPlaces(most)
	var holders, taken atomic.Int64
	var crowd sync.WaitGroup
	for i := range 8 {
		crowd.Go(func() {
			queues := []uint64{uint64(i), uint64(i % 2 * 100)}
			for range 20_000 {
				if !s.take(queues) {
					continue
				}
				taken.Add(1)
				if n := holders.Add(1); n > most {
					t.Errorf("%d hold places", n)
				}
				holders.Add(-1)
				s.put(queues)
			}
		})
	}
	crowd.Wait()
	if taken.Load() == 0 {
		t.Error("nobody got one")
	}
	if s.free != most || len(s.held) != 0 {
		t.Errorf("%d are free at the end, and the queues hold %v, want %d and nothing", s.free, s.held, most)
	}
}

// fill takes places for a queue until it gets no more, and returns how many that are.
func fill(s *waitPlaces, queues ...uint64) (n int) {
	for s.take(queues) {
		n++
	}
	return n
}

func TestAQueueHoldsNoMorePlacesThanAreFree(t *testing.T) {
	for most, want := range map[int][]int{ // that the first, the second … queue gets, one after another
		1:    {1, 0},
		2:    {1, 1, 0},
		3:    {2, 1, 0},
		10:   {5, 3, 1, 1, 0},
		1024: {512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1, 0},
	} {
		s := newWaitPlaces(most)
		var got []int
		for q := range want {
			got = append(got, fill(s, uint64(q)))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("of %d places the queues got %v, want %v", most, got, want)
		}
	}

	// Queues whose requests come in turns get the same. One that has few may have more when others have left.
	s := newWaitPlaces(1024)
	held := [3]int{fill(s, 0)}
	for range 10_000 {
		for q := range held {
			if held[q] > 0 { // its first has had its turn
				s.put([]uint64{uint64(q)})
				held[q]--
			}
			for range 2 { // and two more come
				if s.take([]uint64{uint64(q)}) {
					held[q]++
				}
			}
		}
	}
	for q, n := range held {
		if n < 255 || n > 257 {
			t.Errorf("queue %d of three holds %d of 1024 places, want a quarter", q, n)
		}
	}
}

func TestARequestNeedsRoomInOneOfItsQueues(t *testing.T) {
	s := newWaitPlaces(10)
	if n := fill(s, 1); n != 5 {
		t.Fatalf("one queue gets %d of 10, want 5", n)
	}
	if s.take([]uint64{1}) || s.free != 5 || len(s.held) != 1 {
		t.Errorf("a full queue was made longer: %d are free, queues %v", s.free, s.held)
	}
	// The emptier queue counts, whichever is named first.
	if !s.take([]uint64{2, 1}) || !s.take([]uint64{1, 2}) || s.held[1] != 7 || s.held[2] != 2 || s.free != 3 {
		t.Errorf("%d are free, queues %v, want 3, and 7 and 2 in the queues", s.free, s.held)
	}
	s.put([]uint64{2, 1})
	for i, want := range []bool{true, true, true, true, false} {
		if got := s.take(nil); got != want {
			t.Errorf("the %d. request without a queue gets a place: %t, want %t, of 4 that are free", i+1, got, want)
		}
	}
}

func TestOnlyWhatIsWaitedForHasAQueue(t *testing.T) {
	s := newWaitPlaces(1)
	queues := s.queues(nil, []store.Charge{
		{Policy: "a", Key: "k", MaxWait: time.Second},
		{Policy: "a", Key: "k"},
		{Policy: "a", Key: "k", MaxWait: time.Second, Shadow: true},
		{Policy: "b", Key: "k", MaxWait: time.Second},
		{Policy: "a", Key: "kb", MaxWait: time.Second},
		{Policy: "ak", Key: "b", MaxWait: time.Second},
		{Policy: "a", Key: "k", MaxWait: time.Hour},
	})
	if len(queues) != 5 || queues[0] != queues[4] {
		t.Fatalf("%v, want five, the last that of the first", queues)
	}
	different := make(map[uint64]bool)
	for _, q := range queues {
		different[q] = true
	}
	if len(different) != 4 {
		t.Errorf("%v, want four that differ", queues)
	}
	if newWaitPlaces(1).queues(nil, []store.Charge{{Policy: "a", Key: "k", MaxWait: time.Second}})[0] == queues[0] {
		t.Error("two limiters have the same hashes")
	}
}

func BenchmarkPlaces(b *testing.B) {
	s := newWaitPlaces(1024)
	charges := []store.Charge{{Policy: "api", Key: "ip:192.0.2.1", MaxWait: time.Second}}
	b.ReportAllocs()
	for b.Loop() {
		var room [4]uint64
		queues := s.queues(room[:0], charges)
		if s.take(queues) {
			s.put(queues)
		}
	}
}
