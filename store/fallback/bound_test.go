package fallback_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// seeds is how often each scenario is run, and floods how many times the rate clients send that want all.
var (
	seeds  = testsize.Of(1, 3)
	floods = float64(testsize.Of(10, 20))
)

// The worst that a client got of a scenario.
type worst struct{ bursts, share, honest float64 }

// worstOf runs a client in a scenario with several seeds.
func worstOf(t *testing.T, s scenario, c client) worst {
	all := worst{honest: 1}
	for seed := range uint64(seeds) {
		s.seed = seed
		got := s.run(t, c)
		all.bursts, all.share = max(all.bursts, got.bursts()), max(all.share, got.share())
		all.honest = min(all.honest, got.honest())
	}
	return all
}

// once is a scenario with an outage of some replicas for a minute.
func once(replicas, away int, rate float64, burst, cost int64) scenario {
	return scenario{
		replicas: replicas, rate: rate, burst: burst, cost: cost,
		length: 600 * time.Second, outages: []cut{{100 * time.Second, 160 * time.Second, away}},
	}
}

// An outage of all replicas exceeds burst + rate × time by at most a burst, or the largest cost on each replica, whoever
// sends. A client that lurks has full buckets, a client that watches keeps them so.
func TestAnOutageOfAllReplicasIsBounded(t *testing.T) {
	for name, s := range map[string]scenario{
		"4 replicas":                 once(4, 4, 2, 20, 1),
		"8 replicas":                 once(8, 8, 2, 20, 1),
		"8 replicas, a burst of 200": once(8, 8, 5, 200, 1),
		"8 replicas, a burst of 4":   once(8, 8, 0.5, 4, 1),
		"8 replicas, a burst of 1":   once(8, 8, 0.1, 1, 1),
		"8 replicas, costs of 20":    once(8, 8, 2, 20, 20),
		"4 replicas, costs of 7":     once(4, 4, 2, 20, 7),
	} {
		s.length = time.Duration(testsize.Of(240, 600)) * time.Second
		t.Run(name, func(t *testing.T) {
			bound := 1 + max(1, float64(s.replicas)*float64(s.cost)/float64(s.burst))
			for name, c := range map[string]client{"flood": flood(floods), "lurk": lurk(floods), "watch": watch(floods, .5)} {
				got := worstOf(t, s, c)
				t.Logf("%s: %.1f bursts, of %.1f; %.2f of the limit", name, got.bursts, bound, got.share)
				if got.bursts > bound {
					t.Errorf("%s: more than the bound", name)
				}
			}
		})
	}
}

// isLong reports whether s is only run in make test-all.
func (s *scenario) isLong() bool {
	return s.length*time.Duration(s.replicas) > time.Duration(testsize.Of(1600, 1<<20))*time.Second
}

// flapping are scenarios in which the primary comes and goes all the time, for all replicas.
var flapping = map[string]scenario{
	"every other second":                      {replicas: 4, rate: 2, burst: 20, cost: 1, length: 400 * time.Second, outages: every(2*time.Second, time.Second, 400*time.Second, 4)},
	"1 s in 10 s":                             {replicas: 4, rate: 2, burst: 20, cost: 1, length: 900 * time.Second, outages: every(10*time.Second, time.Second, 900*time.Second, 4)},
	"1 s in 10 s, 8 replicas":                 {replicas: 8, rate: 3, burst: 30, cost: 1, length: 900 * time.Second, outages: every(10*time.Second, time.Second, 900*time.Second, 8)},
	"1 s in 10 s, 8 replicas, a burst of 4":   {replicas: 8, rate: 2, burst: 4, cost: 1, length: 900 * time.Second, outages: every(10*time.Second, time.Second, 900*time.Second, 8)},
	"1 s in 60 s":                             {replicas: 4, rate: 1, burst: 60, cost: 1, length: 20 * time.Minute, outages: every(time.Minute, time.Second, 20*time.Minute, 4)},
	"126 s in 180 s":                          {replicas: 4, rate: 0.1, burst: 60, cost: 1, length: time.Hour, outages: every(180*time.Second, 126*time.Second, time.Hour, 4)},
	"0.8 s in 1.2 s, costs of a third":        {replicas: 4, rate: 5, burst: 60, cost: 22, length: 200 * time.Second, outages: every(1200*time.Millisecond, 840*time.Millisecond, 200*time.Second, 4)},
	"14 s in 20 s, 8 replicas, a burst of 4":  {replicas: 8, rate: 0.1, burst: 4, cost: 1, length: 1200 * time.Second, outages: every(20*time.Second, 14*time.Second, 1200*time.Second, 8)},
	"4 s in 10 s, 8 replicas, a burst of 100": {replicas: 8, rate: 5, burst: 100, cost: 1, length: 400 * time.Second, outages: every(10*time.Second, 4*time.Second, 400*time.Second, 8)},
}

// A flood has the limit, or a little more if few tokens come between two outages. A client that knows how full its bucket is,
// and when an outage begins, has more: 1.25 in most of these scenarios, and 1.75 where the primary is away most of the time.
func TestFlappingIsBounded(t *testing.T) {
	for name, s := range flapping {
		if s.isLong() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for name, c := range map[string]struct {
				client
				most float64
			}{"flood": {flood(floods), 1.15}, "lurk": {lurk(floods), 1.15}, "keeps 0.3": {watch(floods, .3), 1.75}, "keeps 0.5": {watch(floods, .5), 1.75}} {
				got := worstOf(t, s, c.client)
				t.Logf("%s: %.2f of the limit; %.1f bursts", name, got.share, got.bursts)
				if got.share > c.most {
					t.Errorf("%s: more than %.2f of the limit", name, c.most)
				}
			}
		})
	}
}

// While k of n replicas are cut off, all together allow up to 1 + k/n times the limit.
func TestAPartialOutageIsBounded(t *testing.T) {
	for name, s := range map[string]scenario{
		"1 of 4":                once(4, 1, 2, 20, 1),
		"3 of 4":                once(4, 3, 2, 20, 1),
		"7 of 8, a burst of 4":  once(8, 7, 0.5, 4, 1),
		"1 of 4, 5 s in 20 s":   {replicas: 4, rate: 2, burst: 20, cost: 1, length: 600 * time.Second, outages: every(20*time.Second, 5*time.Second, 600*time.Second, 1)},
		"6 of 8, 10 s in 20 s":  {replicas: 8, rate: 2, burst: 40, cost: 1, length: 600 * time.Second, outages: every(20*time.Second, 10*time.Second, 600*time.Second, 6)},
		"2 of 4 for 10 minutes": {replicas: 4, rate: 2, burst: 20, cost: 1, length: 600 * time.Second, outages: []cut{{0, 600 * time.Second, 2}}},
	} {
		s.length = min(s.length, time.Duration(testsize.Of(200, 600))*time.Second)
		t.Run(name, func(t *testing.T) {
			away := float64(s.outages[0].replicas) / float64(s.replicas)
			for name, c := range map[string]client{"flood": flood(floods), "watch": watch(floods, .5)} {
				got := worstOf(t, s, c)
				most := 1 + away
				t.Logf("%s: %.2f of the limit, of %.2f; %.1f bursts", name, got.share, most, got.bursts)
				if got.share > most {
					t.Errorf("%s: more than the bound", name)
				}
			}
		})
	}
}

// Clients at 0.9 of their limit are hardly denied where each replica's share of the burst is well above one.
func TestHonestClientsAreAllowedInOutages(t *testing.T) {
	scenarios := map[string]scenario{"once, 4 replicas": once(4, 4, 2, 20, 1), "once, 8 replicas": once(8, 8, 2, 40, 1), "once, 1 of 4": once(4, 1, 2, 20, 1)}
	for _, name := range []string{"1 s in 10 s", "1 s in 60 s", "every other second", "4 s in 10 s, 8 replicas, a burst of 100"} {
		scenarios[name] = flapping[name]
	}
	for name, s := range scenarios {
		if s.isLong() && len(s.outages) > 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			least := .97
			if len(s.outages) > 1 && name != "1 s in 10 s" && name != "1 s in 60 s" {
				least = .93 // the primary is away for almost half of the time
			}
			for name, c := range map[string]struct {
				client
				least float64
			}{"steady": {steady(.9, false), .97}, "bursty": {bursty(.9), least}} {
				got := worstOf(t, s, c.client)
				t.Logf("%s: %.3f of its requests", name, got.honest)
				if got.honest < c.least {
					t.Errorf("%s: less than %.2f", name, c.least)
				}
			}
			// A client whose requests all go to one replica has its share of the limit in an outage.
			t.Logf("sticky: %.3f of its requests", worstOf(t, s, steady(.9, true)).honest)
		})
	}
}

// Random scenarios, with all bounds at once.
func TestRandomOutagesAreBounded(t *testing.T) {
	most := map[string]float64{}
	for seed := range uint64(testsize.Of(12, 60)) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		pick := func(of ...float64) float64 { return of[rnd.IntN(len(of))] }
		s := scenario{replicas: 1 << rnd.IntN(4), burst: int64(pick(1, 2, 4, 8, 20, 60)), rate: pick(.1, .5, 2, 5), cost: 1, seed: seed}
		if rnd.IntN(4) == 0 {
			s.cost += rnd.Int64N(s.burst)
		}
		fill := float64(s.burst) / s.rate
		period := fill * pick(.1, .3, .5, 1, 2)
		s.length = seconds(max(15*period, 5*fill))
		away := s.replicas
		if rnd.IntN(2) == 0 {
			away = 1 + rnd.IntN(away)
		}
		s.outages = every(seconds(period), seconds(period*pick(.05, .1, .3, .5, .7)), s.length, away)
		for name, c := range map[string]struct {
			client
			most float64
		}{"flood": {flood(10), 1.15}, "watch": {watch(10, pick(.2, .3, .5, .6, .8)), 1.75}} {
			bound := c.most
			if away < s.replicas {
				bound = 1 + float64(away)/float64(s.replicas)
			}
			// The first outage and the last are whole ones, though the scenario is short.
			bound += max(1, float64(s.replicas)*float64(s.cost)/float64(s.burst)) * float64(s.burst) / (float64(s.burst) + s.rate*s.length.Seconds())
			got := s.run(t, c.client).share()
			most[name] = max(most[name], got)
			if got > bound {
				t.Errorf("%s: %.2f of the limit, of %.2f: %+v", name, got, bound, s)
			}
		}
	}
	t.Logf("floods have at most %.2f of the limit, clients that watch %.2f", most["flood"], most["watch"])
}
