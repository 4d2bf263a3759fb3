package ratelimit

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestNoMoreSlotsAreTakenThanThereAre(t *testing.T) {
	const most = 3
	s := slots{max: most}
	var holders, taken atomic.Int64
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			for range 20_000 {
				if !s.take() {
					continue
				}
				taken.Add(1)
				if n := holders.Add(1); n > most {
					t.Errorf("%d hold slots", n)
				}
				holders.Add(-1)
				s.free()
			}
		})
	}
	crowd.Wait()
	if taken.Load() == 0 {
		t.Error("nobody got one")
	}
	for range most {
		if !s.take() {
			t.Fatal("a slot was lost")
		}
	}
	if s.take() {
		t.Error("there is one too many")
	}
}
