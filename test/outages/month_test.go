package outages_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A month of virtual time in Europe/Berlin, from the 10th of March to the 10th of April 2026. Clocks are set forward on the
// 29th of March. Three replicas share a Redis, which is killed at the ends of two days and of March. Clients ask for more
// than each quota allows, at all times. If Redis
// loses its data, each outage may admit one quota more in the periods that it touches. Else, all outages of a period may.
func TestAMonthOfQuotas(t *testing.T) {
	kept := []string{"--appendonly", "yes", "--appendfsync", "everysec"}
	daily := make([][2]string, testsize.Of(0, 30))
	for i := range daily {
		date := time.Date(2026, 3, 10+i, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
		daily[i] = [2]string{date + " 11:50", date + " 12:30"}
	}
	for name, tt := range map[string]struct {
		args    []string
		outages [][2]string
	}{
		"Redis keeps its data": {kept, outagesOfMonth},
		"Redis loses its data": {nil, outagesOfMonth},
		"an outage each day":   {kept, daily},
	} {
		if len(tt.outages) == 0 {
			continue // without the tag long
		}
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, tt.args...)
			orders, carried := make(chan func()), make(chan struct{})
			defer close(orders)
			go func() { // outside of the bubble, where the process of the server is
				for order := range orders {
					order()
					carried <- struct{}{}
				}
			}()
			do := func(order func()) { orders <- order; <-carried }
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2026, 3, 9, 23, 0, 0, 0, time.UTC))) // the 10th in Berlin
				m := newMonth(t, server.Addr())
				m.run(t, tt.outages, func() { do(server.Kill) }, func() { do(server.Restart) })
				m.check(t, tt.args == nil)
			})
		})
	}
}

// outagesOfMonth are when Redis is away, by the clocks of Berlin.
var outagesOfMonth = [][2]string{
	{"2026-03-20 23:20", "2026-03-21 00:40"},
	{"2026-03-28 23:30", "2026-03-29 04:10"}, // over the change of the clocks
	{"2026-03-31 22:50", "2026-04-01 01:10"},
}

const (
	replicasOfMonth = 3
	stepOfMonth     = 20 * time.Minute
)

// A month is the replicas, and what they have admitted.
type month struct {
	berlin   *time.Location
	replicas []*fallback.Store
	charges  []store.Charge
	away     atomic.Int64      // replicas that have given up Redis
	admitted []map[int64]int64 // for each charge, in the period that begins then
	outages  []map[int64]int64 // in that period
}

func newMonth(t *testing.T, addr string) *month {
	m := &month{berlin: ratelimit.Must(time.LoadLocation("Europe/Berlin"))}
	for _, q := range []struct {
		n    int64
		unit store.PeriodUnit
	}{{10, store.Hour}, {200, store.Day}, {1200, store.Week}, {5000, store.Month}} {
		l := ratelimit.Must(store.NewQuota(q.n, ratelimit.Must(store.NewPeriod(q.unit, "Europe/Berlin"))))
		m.charges = append(m.charges, store.Charge{Policy: q.unit.String(), Key: "client", Limit: l, Cost: 1})
		m.admitted, m.outages = append(m.admitted, map[int64]int64{}), append(m.outages, map[int64]int64{})
	}
	logger := slog.New(slog.DiscardHandler)
	for range replicasOfMonth {
		client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
		primary := ratelimit.Must(redisstore.New(client, redisstore.Config{Clock: time.Now, Logger: logger}))
		secondary := ratelimit.Must(memstore.New(memstore.Config{}))
		secondary.Close() // ends its sweep, which would wake the test three million times
		f := ratelimit.Must(fallback.New(primary, secondary, fallback.Config{Replicas: replicasOfMonth, ProbeEvery: time.Minute, Logger: logger, OnChange: m.change}))
		t.Cleanup(func() {
			f.Close()
			primary.Close()
			client.Close()
		})
		m.replicas = append(m.replicas, f)
	}
	return m
}

func (m *month) change(away bool, _ error) {
	if away {
		m.away.Add(1)
	} else {
		m.away.Add(-1)
	}
}

func (m *month) at(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04", text, m.berlin)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// run serves clients for the month. kill and restart are of Redis.
func (m *month) run(t *testing.T, outages [][2]string, kill, restart func()) {
	for _, outage := range outages {
		m.serve(t, m.at(t, outage[0]))
		kill()
		m.serve(t, m.at(t, outage[1]))
		restart()
		for time.Sleep(time.Minute); m.away.Load() > 0; { // until each replica has found Redis to be back
			time.Sleep(time.Minute)
		}
		m.note(m.at(t, outage[0]), time.Now())
	}
	m.serve(t, m.at(t, "2026-04-10 00:00"))
}

// note notes in which periods an outage is.
func (m *month) note(begin, end time.Time) {
	for i, c := range m.charges {
		for at := begin.UnixMicro(); at < end.UnixMicro(); {
			period, next := c.Limit.Period.Bounds(at)
			m.outages[i][period]++
			at = next
		}
	}
}

// serve sends requests until a time.
func (m *month) serve(t *testing.T, until time.Time) {
	for ; time.Now().Before(until); time.Sleep(min(stepOfMonth, time.Until(until))) {
		for i, c := range m.charges {
			begin, _ := c.Limit.Period.Bounds(time.Now().UnixMicro())
			for _, replica := range m.replicas {
				for range 10 {
					ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
					ok, err := replica.Take(ctx, []store.Charge{c}, make([]store.State, 1))
					if cancel(); err != nil {
						t.Fatalf("at %v: %v", time.Now().In(m.berlin), err)
					}
					if !ok {
						break
					}
					m.admitted[i][begin]++
				}
			}
		}
	}
}

// check compares what was admitted in each period with the quota. lost reports that each outage has lost the data of Redis.
func (m *month) check(t *testing.T, lost bool) {
	for i, c := range m.charges {
		quota := c.Limit.Capacity
		var periods, most, out, mostOut int64
		for begin, n := range m.admitted[i] {
			outages := m.outages[i][begin]
			if outages > 0 {
				out, mostOut = out+1, max(mostOut, n)
			} else {
				periods, most = periods+1, max(most, n)
			}
			if !lost {
				outages = min(outages, 1)
			}
			if at := time.UnixMicro(begin).In(m.berlin); n > quota*(1+outages) {
				t.Errorf("%s: %d of a quota of %d in the period from %v on, which has %d outages", c.Limit.Period, n, quota, at, outages)
			}
		}
		t.Logf("%s: at most %.2f of the quota in %d periods without an outage, and %.2f in %d with one",
			c.Limit.Period, float64(most)/float64(quota), periods, float64(mostOut)/float64(quota), out)
		if periods > 0 && most != quota {
			t.Errorf("%s: at most %d of a quota of %d, want all of it", c.Limit.Period, most, quota)
		}
	}
}
