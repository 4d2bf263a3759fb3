//go:build long

package redisstore_test

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

// With so many callers, nearly all calls are merged or refused without Redis.
func TestProcessesOfManyCallersShareALimitExactly(t *testing.T) {
	hammer(t, hammering{Rate: 250, Burst: 500, Callers: 64, Keys: 1})
}

func TestProcessesOfManyCallersShareManyLimitsExactly(t *testing.T) {
	hammer(t, hammering{Rate: 25, Burst: 50, Callers: 64, Keys: 20})
}

// A machine that is too busy to ask as often as it would be admitted gets two more tries. A limiter that admits too
// few does so in each of them, and one that admits too many has no second.
func TestKilledProcessesThatLeaseKeepToTheLimit(t *testing.T) {
	const processes, killed = 8, 2
	for try := 1; try <= 3; try++ {
		h := hammering{Rate: 2000, Burst: 1000, Keys: 1, Fraction: 0.1, Callers: 4, Pause: 5 * time.Millisecond, From: time.Now().Add(2 * time.Second), For: 10 * time.Second}
		total := h.byProcesses(t, processes, killed)
		took := total.latest.Sub(h.From)
		most := float64(h.Burst) + float64(h.Rate)*took.Seconds()
		// Other processes hold a lease each at the end, and those killed have lost theirs, and what they admitted
		// and did not write.
		under := float64(processes+killed)*h.Fraction*float64(h.Burst) + float64(killed*h.Callers)
		least := float64(h.Burst) + float64(h.Rate)*h.For.Seconds() - under
		t.Logf("%d admitted in %v, %d of them without Redis: %.2f %% of %.1f", total.all, took, total.leased, 100*float64(total.all)/most, most)
		if float64(total.all) > most {
			t.Fatalf("want at most %.1f", most)
		}
		if total.leased < total.all/10 {
			t.Error("want a tenth without Redis, or it is not leases that are tested")
		}
		if float64(total.all) >= least {
			return
		}
		if try == 3 {
			t.Errorf("want at least %.1f", least)
		}
	}
}

func TestSoak(t *testing.T) {
	storetest.RunSoak(t, through(redisstore.EitherScript, onClient(redistest.Start(t).Client())))
}
