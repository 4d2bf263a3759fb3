package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// byOwner returns those targets that are not on master i of c, and those that are.
func byOwner(c *redistest.Cluster, all []*target, i int) (others, own []*target) {
	for _, x := range all {
		if c.Owner(c.Slot(x.charges[0].Key)) == i {
			own = append(own, x)
		} else {
			others = append(others, x)
		}
	}
	return others, own
}

// slowestOf is how long the slowest call of all took.
func slowestOf(all []*target) (slowest time.Duration) {
	for _, x := range all {
		slowest = max(slowest, x.slowest)
	}
	return slowest
}

// streams waits until replica has what was written: for up to a second after it is in sync, it is sent nothing.
func streams(t *testing.T, replica *redistest.Server) {
	t.Helper()
	until(t, "the replica has keys", func() bool { return replica.Do("DBSIZE") != int64(0) })
}

// inEachForm runs a test of a cluster whose masters find out that they take keys of several slots in one script, and
// with the tag long also where that is taken for granted, and where each slot is sent a call.
func inEachForm(t *testing.T, test func(t *testing.T, how redisstore.CrossSlot)) {
	t.Helper()
	t.Run("by default", func(t *testing.T) { test(t, redisstore.CrossSlotAuto) })
	if testsize.Of(1, 2) > 1 {
		for name, how := range forms {
			t.Run(name, func(t *testing.T) { test(t, how) })
		}
	}
}

// untilCalm repeats test, twice at most, while test reports that masters which work did not answer for lack of
// processor time. Calls may fail then.
func untilCalm(test func(t *testing.T, how redisstore.CrossSlot) (calm bool)) func(t *testing.T, how redisstore.CrossSlot) {
	return func(t *testing.T, how redisstore.CrossSlot) {
		for tries := 1; !test(t, how) && tries < 3; tries++ {
		}
	}
}

// slowestPing returns how long the slowest PING to one of nodes takes while f runs.
func slowestPing(nodes []*redistest.Server, f func()) (slowest time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	times := make([]time.Duration, len(nodes))
	var pings sync.WaitGroup
	for i, node := range nodes {
		pings.Go(func() {
			client := redis.NewClient(&redis.Options{Addr: node.Addr()})
			defer client.Close()
			for ctx.Err() == nil {
				begin := time.Now()
				client.Ping(context.Background())
				times[i] = max(times[i], time.Since(begin))
				time.Sleep(time.Millisecond)
			}
		})
	}
	f()
	stop()
	pings.Wait()
	return slices.Max(times)
}

// crossed makes calls of all targets until s has found out, if it is to, that a master of c takes keys of several slots in
// one script.
func crossed(t *testing.T, c *redistest.Cluster, s *redisstore.Store, how redisstore.CrossSlot, all []*target) {
	t.Helper()
	if how != redisstore.CrossSlotAuto || !allowsCrossing(t, c) {
		return
	}
	under(s, all, 300*time.Millisecond, func() {
		until(t, "a master is found to take keys of several slots", func() bool {
			yes, _ := redisstore.Crossings(s)
			return yes > 0
		})
	})
}

func TestNoCallFailsWhileOneNodeKeepsForgettingTheScript(t *testing.T) {
	inEachForm(t, func(t *testing.T, how redisstore.CrossSlot) {
		c := redistest.SharedCluster(t, 3)
		client := c.Client()
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1, CrossSlot: how}))
		all := targets(t, "p")
		under(s, all, patient, func() {
			repeat(lasts(), func() { c.Nodes[0].Do("SCRIPT", "FLUSH") })
		})
		noneFailed(t, all)
		crossed(t, c, s, how, all)
		settled(t, s, client, all, patient, 0)
	})
}

func TestNoCallFailsWhileTheSlotOfAHotKeyMoves(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, how redisstore.CrossSlot) {
		c := redistest.StartCluster(t, 3)
		client := c.Client()
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1, CrossSlot: how}))
		all := targets(t, "p", "q", "r")
		slot := c.Slot("k5")
		moves := 0
		under(s, all, patient, func() {
			repeat(2*lasts(), func() {
				m := c.StartMigration(slot, (c.Owner(slot)+1)%len(c.Nodes))
				for m.MoveKeys(1) > 0 {
				}
				m.Finish()
				moves++
				// The nodes tell each other of a move. If the next one began before that, its source might not own the slot yet.
				time.Sleep(20 * time.Millisecond)
			})
		})
		t.Logf("the slot moved %d times", moves)
		noneFailed(t, all)
		crossed(t, c, s, how, all)
		settled(t, s, client, all, patient, 0)
	})
}

func TestAHungMasterKeepsNoCallsOfOthersWaiting(t *testing.T) {
	t.Parallel()
	inEachForm(t, untilCalm(func(t *testing.T, how redisstore.CrossSlot) (calm bool) {
		const timeout = 300 * time.Millisecond
		c := redistest.StartCluster(t, 3)
		client := c.Client()
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{CrossSlot: how}))
		all := targets(t, "p")
		others, own := byOwner(c, all, 0)
		recovers(t, s, all)
		ping := slowestPing(c.Nodes[1:], func() {
			under(s, own, timeout, func() {
				under(s, others, timeout, func() { // with callers of their own, who never wait for that master
					c.Nodes[0].Pause()
					time.Sleep(time.Second)
					c.Nodes[0].Resume()
				})
			})
		})
		t.Logf("slowest: %v of others, %v of the one that hung, %v of a PING", slowestOf(others), slowestOf(own), ping)
		if calm = ping < timeout/2; calm {
			noneFailed(t, others)
		}
		t.Logf("works again after %v", recovers(t, s, all))
		crossed(t, c, s, how, all)
		settled(t, s, client, all, timeout, 0)
		return calm
	}))
}

func TestAMasterOfAClusterIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	inEachForm(t, untilCalm(func(t *testing.T, how redisstore.CrossSlot) (calm bool) {
		const timeout = 300 * time.Millisecond
		c := redistest.StartClusterWithReplicas(t, 3)
		for _, node := range append(c.Nodes, c.Replicas...) {
			// By default, no node serves anything while a slot has no master.
			node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		}
		client := c.Client()
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{CrossSlot: how}))
		all := targets(t, "p")
		others, own := byOwner(c, all, 0)
		recovers(t, s, all)
		streams(t, c.Replicas[0])
		var before string
		ping := slowestPing(c.Nodes[1:], func() {
			under(s, all, timeout, func() {
				time.Sleep(300 * time.Millisecond)
				c.Nodes[0].Kill()
				c.WaitFailover(0)
				begin := time.Now()
				before = fmt.Sprint(recovers(t, s, own), " under load, ", time.Since(begin))
			})
		})
		t.Logf("works again after %s; slowest: %v of others, %v of the one that was killed, %v of a PING", before, slowestOf(others), slowestOf(own), ping)
		if calm = ping < timeout/2; calm {
			noneFailed(t, others)
		}
		recovers(t, s, all)
		crossed(t, c, s, how, all)
		// What had not reached the replica is lost: at most a full bucket.
		settled(t, s, client, all, timeout, 1)
		return calm
	}))
}

// Calls over two slots lose nothing while one of these moves from one master to another, or back, with its keys one by
// one: neither in one step, as long as both are on one master, nor in two.
func TestNoCallOverTwoSlotsFailsWhileOneOfThemMoves(t *testing.T) {
	t.Parallel()
	inEachForm(t, func(t *testing.T, how redisstore.CrossSlot) {
		c := redistest.StartCluster(t, 3)
		client := c.Client()
		s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1, CrossSlot: how}))
		slot := c.Slot("moves")
		var all []*target
		for i := range 12 {
			burst := int64(100_000)
			if i < 4 {
				burst = 200
			}
			x := newTarget(t, fmt.Sprint("stays", i), burst, "p")
			x.charges = append(x.charges, newTarget(t, "moves", burst, fmt.Sprint("q", i)).charges...)
			all = append(all, x)
		}
		recovers(t, s, all)
		moves := 0
		under(s, all, patient, func() {
			repeat(2*lasts(), func() {
				m := c.StartMigration(slot, (c.Owner(slot)+1)%len(c.Nodes))
				for m.MoveKeys(1) > 0 {
				}
				m.Finish()
				moves++
				// A call that was sent on by ASK must not arrive when the slot has gone round and comes in again: it would find
				// no bucket there, since that is still to follow.
				time.Sleep(100 * time.Millisecond)
			})
		})
		t.Logf("the slot moved %d times", moves)
		noneFailed(t, all)
		crossed(t, c, s, how, all)
		settled(t, s, client, all, patient, 0)
	})
}

// While a cluster is down, nothing is charged, and calls over several slots of a master say so, also where the cluster
// can still be read.
func TestAClusterThatIsDownChargesNothing(t *testing.T) {
	t.Parallel()
	c := crossable(t, redistest.StartCluster(t, 3))
	s := openKnown(t, c.Client(), redisstore.Config{CrossSlot: redisstore.CrossSlotAlways, MaxDenials: -1})
	const burst = 500_000 // not used up before the nodes know
	charges := sameMaster(t, c, 0, 3)
	for i := range charges {
		charges[i].Limit = limit(t, 1, time.Hour, burst)
	}
	takeAll(t, s, charges...)
	left := c.Slot("left")
	allowed := int64(1)
	for ok := true; ok; allowed++ { // until the nodes know
		for _, node := range c.Nodes { // again and again: a message of the owner that was under way assigns the slot anew
			if strings.Contains(fmt.Sprint(node.Do("CLUSTER", "INFO")), "cluster_slots_assigned:16384") {
				node.Do("CLUSTER", "DELSLOTS", left)
			}
		}
		var err error
		if ok, err = tryFor(patient, s, charges...); !ok && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
			t.Fatalf("error %v, want CLUSTERDOWN", err)
		}
	}
	allowed--
	for _, node := range c.Nodes {
		node.Do("CONFIG", "SET", "cluster-allow-reads-when-down", "yes")
	}
	if ok, err := tryFor(patient, s, charges...); ok || err == nil || !strings.Contains(err.Error(), "the cluster is down") {
		t.Errorf("ok %t, error %v, want one of the cluster", ok, err)
	}
	for _, charge := range charges {
		tokens := fmt.Sprint(c.Nodes[0].Do("HGET", "ratelimit:{"+charge.Key+"}:p", "tokens"))
		if want := fmt.Sprint((burst - allowed) * charge.Limit.Unit); tokens != want {
			t.Errorf("%s holds %s after %d allowed calls, want %s", charge.Key, tokens, allowed, want)
		}
	}
}

func TestSentinelFailsOverUnderLoad(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	sentinel := redistest.StartSentinelWithReplica(t)
	client := sentinel.Client()
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	all := targets(t, "p")
	recovers(t, s, all)
	streams(t, sentinel.Replica)
	under(s, all, timeout, func() {
		time.Sleep(300 * time.Millisecond)
		sentinel.Master.Kill()
		sentinel.WaitFailover()
		time.Sleep(300 * time.Millisecond)
	})
	t.Logf("works again after %v", recovers(t, s, all))
	settled(t, s, client, all, timeout, 1)
}
