package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/rounds"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// BenchmarkSlot reports what it takes to take a slot and release it, beside a lone decision: the ratio of medians over
// alternating rounds. A caller uses one key again and again, or many keys.
func BenchmarkSlot(b *testing.B) {
	client := redistest.Start(b).Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	defer s.Close()
	token := store.Charge{Policy: "tokens", Key: "k", Limit: ratelimit.Must(store.NewLimit(1_000_000, time.Second, 1_000_000)), Cost: 1}
	slots, states := slot(b, "k", 100), make([]store.State, 1)
	charge := func(c store.Charge) {
		if ok, err := s.Take(b.Context(), []store.Charge{c}, states); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	n := 0
	took := rounds.Measure(b, 50, rounds.Wall, func() {
		charge(token)
	}, func() {
		charge(slots)
		charge(costs(slots, -1))
	}, func() {
		c := slots
		c.Key = fmt.Sprint("k", n%1000)
		n++
		charge(c)
		charge(costs(c, -1))
	})
	decision := rounds.Quantile(took[0], 0.5)
	b.ReportMetric(rounds.Quantile(took[1], 0.5)/decision, "one-key-ratio")
	b.ReportMetric(rounds.Quantile(took[2], 0.5)/decision, "many-keys-ratio")
	b.ReportMetric(decision, "decision-ns")
}
