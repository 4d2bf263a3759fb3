package override_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// setKey is the hash of the overrides.
const setKey = "ratelimit:{overrides}"

// A deployment is some servers of which that with the overrides is lost.
type deployment struct {
	*testing.T
	client func() redis.UniversalClient
	lose   func() // returns when it has begun
}

func (d deployment) start() replica {
	d.Helper()
	quiet := slog.New(slog.DiscardHandler)
	buckets := ratelimit.Must(redisstore.New(d.client(), redisstore.Config{Logger: quiet}))
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: buckets, Logger: quiet, Policies: []ratelimit.Policy{policy("api", ratelimit.PerMinute(60).WithBurst(10))}}))
	changed, err := override.Watch(d.Context(), l, buckets, override.Config{Logger: quiet})
	if err != nil {
		d.Fatal(err)
	}
	return replica{Limiter: l, Overrides: changed}
}

// startsWith checks that a replica begins with a limit, or has it as soon as it can read it.
func (d deployment) startsWith(limit string) {
	d.Helper()
	r := d.start()
	if r.Problem() == "" && r.api() != limit {
		d.Errorf("started with %s", r.api())
	}
	testprogram.Until(d.T, "a new replica has "+limit, func() bool { return r.api() == limit })
}

// set changes the limit, also if the client has not found the servers again yet.
func (d deployment) set(r replica, limit string) {
	d.Helper()
	testprogram.Until(d.T, "the limit is set to "+limit, func() bool {
		ctx, cancel := context.WithTimeout(d.Context(), time.Second)
		defer cancel()
		return r.Set(ctx, change(limit, "")) == nil
	})
}

// check makes a change, loses the server that has it, and makes another change.
func (d deployment) check() {
	d.Helper()
	a, b := d.start(), d.start()
	d.set(a, "120/1m burst 20")
	testprogram.Until(d.T, "the other replica follows", func() bool { return b.api() == "120/1m burst 20" })
	d.startsWith("120/1m burst 20")

	ctx, cancel := context.WithCancel(d.Context())
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if a.api() != "120/1m burst 20" || b.api() != "120/1m burst 20" {
				d.Errorf("without the server, in force are %s and %s", a.api(), b.api())
				return
			}
		}
	})
	d.lose()
	testprogram.Until(d.T, "the overrides are read again", func() bool { return a.Problem() == "" && b.Problem() == "" })
	d.startsWith("120/1m burst 20") // kept, or written back
	cancel()
	sampling.Wait()
	d.set(b, "240/1m burst 40")
	testprogram.Until(d.T, "the other replica follows", func() bool { return a.api() == "240/1m burst 40" && a.Problem() == "" })
	d.startsWith("240/1m burst 40")
}

// replicated waits until a replica has the change.
func replicated(t *testing.T, replica *redistest.Server) {
	t.Helper()
	testprogram.Until(t, "the replica has the change", func() bool { return replica.Do("DBSIZE") == int64(3) })
}

func TestOverridesOnARing(t *testing.T) {
	t.Parallel()
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	d := deployment{T: t, client: func() redis.UniversalClient {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()}, HeartbeatFrequency: 100 * time.Millisecond})
		t.Cleanup(func() { ring.Close() })
		return ring
	}}
	d.lose = func() {
		for _, s := range servers {
			if s.Do("EXISTS", setKey) == int64(1) {
				s.Kill()
				break
			}
		}
	}
	d.check() // the other one has no overrides
}

func TestOverridesAfterAFailoverOfSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinelWithReplica(t)
	deployment{T: t, client: func() redis.UniversalClient { return s.Client() }, lose: func() {
		replicated(t, s.Replica)
		s.Master.Kill()
		s.WaitFailover()
	}}.check()
}

func TestOverridesAfterAFailoverOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartClusterWithReplicas(t, 3)
	deployment{T: t, client: func() redis.UniversalClient { return c.Client() }, lose: func() {
		owner := c.Owner(c.Slot(setKey))
		replicated(t, c.Replicas[owner])
		c.Nodes[owner].Kill()
		c.WaitFailover(owner)
	}}.check()
}
