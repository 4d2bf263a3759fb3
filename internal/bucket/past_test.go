package bucket_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

func TestSettle(t *testing.T) {
	const now, s = 1_780_000_000_000_000, 1_000_000
	l := newLimit(t, 1, time.Second, 10)
	empty := bucket.Bucket{Unit: l.Unit, LastRefill: now - 30*s} // full since 20 s
	for name, c := range map[string]struct {
		b               bucket.Bucket
		spare           bucket.Spare
		tokens, outage  int64
		want            int64 // tokens
		full, used, age int64 // of what is left, in seconds
	}{
		"never charged":                        {tokens: 5, outage: 60, full: 60, used: 5},
		"never charged, and more than refills": {tokens: 70, outage: 60, want: 10, full: 60, used: 60},
		"full for a while":                     {b: empty, tokens: 30, outage: 60, want: 10, full: 20, used: 20},
		"full for longer than the outage":      {b: empty, tokens: 30, outage: 15, want: 15, full: 20, used: 15},
		"not full":                             {b: bucket.Bucket{Unit: l.Unit, LastRefill: now - 10*s}, tokens: 3, outage: 60, want: 3},
		"charged later than now":               {b: bucket.Bucket{Unit: l.Unit, LastRefill: now + 50*s}, tokens: 3, outage: 60, want: 3},
		"what another left": {
			b: bucket.Bucket{Unit: l.Unit, LastRefill: now - s}, spare: bucket.Spare{Full: 100 * s, Used: 10 * s, At: now - s},
			tokens: 60, outage: 61, want: 10, full: 100, used: 60, age: 1,
		},
		"what another left of an earlier outage": {
			b: bucket.Bucket{Unit: l.Unit, LastRefill: now - s}, spare: bucket.Spare{Full: 100 * s, Used: 10 * s, At: now - 70*s},
			tokens: 60, outage: 60, want: 60, full: 100, used: 10, age: 70,
		},
		"what another left, and full since": {
			b: empty, spare: bucket.Spare{Full: 15 * s, Used: 10 * s, At: now - 30*s},
			tokens: 20, outage: 60, full: 20, used: 15,
		},
		"full since, and before that for longer, as another left": {
			b: empty, spare: bucket.Spare{Full: 100 * s, Used: 10 * s, At: now - 30*s},
			tokens: 25, outage: 60, full: 100, used: 15, age: 30,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, rest := l.Settle(c.b, c.spare, l.Past(c.tokens, c.outage*s), now)
			want := bucket.Spare{Full: c.full * s, Used: c.used * s, At: now - c.age*s}
			if c.full == 0 {
				want = bucket.Spare{}
			}
			if got != c.want*l.Unit || rest != want {
				t.Errorf("%d tokens and %+v, want %d and %+v", got/l.Unit, rest, c.want, want)
			}
		})
	}
}

// A bucket is full until 600 s, and in use from then to 1,200 s, where two stand-ins return, of which one was cut off
// all the time and the other since 600 s.
func TestRefillDoesNotPayForALaterOutage(t *testing.T) {
	const s = 1_000_000
	l := newLimit(t, 10, time.Second, 10)
	_, spare := l.Settle(bucket.Bucket{}, bucket.Spare{}, l.Past(1, 600*s), 600*s)
	_, spare = l.Settle(bucket.Bucket{Unit: l.Unit, LastRefill: 1200 * s}, spare, l.Past(1, 1202*s), 1202*s)
	full := bucket.Bucket{Tokens: l.Capacity, Unit: l.Unit, LastRefill: 1202 * s}
	if charged, _ := l.Settle(full, spare, l.Past(6000, 602*s), 1202*s); charged != 6000*l.Unit {
		t.Errorf("charged %d of 6000 tokens that were used while others used the bucket", charged/l.Unit)
	}
}

// Whatever several outages of a bucket overlap, no refill pays twice, and what is charged is at most what was used.
func TestNoRefillPaysTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		l := newLimit(t, 1+r.Int64N(50), time.Second, 1+r.Int64N(50))
		const begin = 1_780_000_000_000_000
		b := bucket.Bucket{Tokens: l.Capacity, Unit: l.Unit, LastRefill: begin}
		var s bucket.Spare
		now, paid := int64(begin), int64(0)
		for range 20 {
			now += r.Int64N(20_000_000)
			if r.IntN(2) == 0 {
				b = l.Advance(b, now)
				b.Tokens = l.Charge(b.Tokens, r.Int64N(2*l.Capacity), 1)
				continue
			}
			p := l.Past(1+r.Int64N(1000), r.Int64N(now-begin+1))
			var charged int64
			charged, s = l.Settle(b, s, p, now)
			if charged < 0 || charged > p.Credits {
				t.Fatalf("%d of %+v", charged, p)
			}
			paid += p.Credits - charged
			b = l.Advance(b, now)
			b.Tokens = l.Charge(b.Tokens, charged, 1)
		}
		if most := (now - begin) * l.Refill; paid > most {
			t.Fatalf("%d credits were paid by a refill of %d", paid, most)
		}
	}
}
