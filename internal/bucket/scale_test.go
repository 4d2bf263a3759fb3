package bucket_test

import (
	"math/rand/v2"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

func TestScaleTellsHowMuchIsSpent(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 0))
	for range 100_000 {
		refill := 1 + r.Int64N(1<<r.IntN(20))
		l := bucket.Limit{Unit: 1, Refill: refill, Capacity: min(refill<<r.IntN(33)+r.Int64N(refill), bucket.MaxCredits)}
		fill := l.Fill()
		if spent := l.Scale().Spent(fill); spent < 1 || spent > 1.25 {
			t.Fatalf("%+v, full in %d µs: %v of an empty bucket is spent", l, fill, spent)
		}
		if spent := l.Scale().Spent(0); spent != 0 {
			t.Fatalf("%+v: %v of a full bucket is spent", l, spent)
		}
		longer := bucket.Limit{Unit: 1, Refill: 1, Capacity: fill + fill/4 + 1}
		if longer.Scale() <= l.Scale() {
			t.Fatalf("%d and %d µs are of scales %d and %d", fill, longer.Fill(), l.Scale(), longer.Scale())
		}
	}
}
