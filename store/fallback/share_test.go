package fallback_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// The share of a bucket has room for the largest cost, and not now for one and now for another: a bucket that is full
// with less, and forgotten, would be found full with more.
func TestCostsOfSeveralSizesKeepToTheShare(t *testing.T) {
	for _, large := range []int64{25, 40} {
		synctest.Test(t, func(t *testing.T) {
			const rate, burst, replicas = 4, 40, 4
			d := newDuo(t, fallback.Config{Replicas: replicas})
			c := store.Charge{Policy: "p", Key: "k", Limit: teststore.Limit(t, rate, time.Second, burst)}
			d.fail(teststore.Broken)
			gaps := map[int64]time.Duration{large: 10500 * time.Millisecond, 1: 2500 * time.Millisecond}
			begin, admitted := time.Now(), int64(0)
			for time.Since(begin) < 10*time.Minute {
				for _, c.Cost = range []int64{large, 1} {
					if ok, _ := d.take(c); ok {
						admitted += c.Cost
					}
					time.Sleep(gaps[c.Cost]) // the share of the burst refills, then a token, and what is full is forgotten
				}
			}
			most := large + int64(time.Since(begin).Seconds())*rate/replicas
			if admitted > most || admitted < most/4 {
				t.Errorf("costs of %d and 1: %d admitted of a share of %d", large, admitted, most)
			} else {
				t.Logf("costs of %d and 1: %d admitted of a share of %d", large, admitted, most)
			}
		})
	}
}
