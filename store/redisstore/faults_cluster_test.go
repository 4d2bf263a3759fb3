package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/redistest"
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
	for begin := time.Now(); replica.Do("DBSIZE") == int64(0); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the replica has no keys")
		}
	}
}

func TestNoCallFailsWhileOneNodeKeepsForgettingTheScript(t *testing.T) {
	c := redistest.SharedCluster(t, 3)
	client := c.Client()
	s := redisstore.New(client, redisstore.Config{MaxDenials: -1})
	all := targets(t, "p")
	under(s, all, patient, func() {
		repeat(time.Second, func() { c.Nodes[0].Do("SCRIPT", "FLUSH") })
	})
	noneFailed(t, all)
	settled(t, s, redisstore.New(client, redisstore.Config{}), all, patient, 0)
}

func TestNoCallFailsWhileTheSlotOfAHotKeyMoves(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	client := c.Client()
	s := redisstore.New(client, redisstore.Config{MaxDenials: -1})
	all := targets(t, "p", "q", "r")
	slot := c.Slot("k5")
	moves := 0
	under(s, all, patient, func() {
		repeat(2*time.Second, func() {
			m := c.StartMigration(slot, (c.Owner(slot)+1)%len(c.Nodes))
			for m.MoveKeys(1) > 0 {
			}
			m.Finish()
			moves++
		})
	})
	t.Logf("the slot moved %d times", moves)
	noneFailed(t, all)
	settled(t, s, redisstore.New(client, redisstore.Config{}), all, patient, 0)
}

func TestAHungMasterKeepsNoCallsOfOthersWaiting(t *testing.T) {
	const timeout = 300 * time.Millisecond
	c := redistest.StartCluster(t, 3)
	client := c.Client()
	s := redisstore.New(client, redisstore.Config{})
	all := targets(t, "p")
	others, own := byOwner(c, all, 0)
	recovers(t, s, all)
	under(s, own, timeout, func() {
		under(s, others, timeout, func() { // with callers of their own, who never wait for that master
			c.Nodes[0].Pause()
			time.Sleep(time.Second)
			c.Nodes[0].Resume()
		})
	})
	t.Logf("slowest: %v of others, %v of the one that hung", slowestOf(others), slowestOf(own))
	noneFailed(t, others)
	t.Logf("works again after %v", recovers(t, s, all))
	settled(t, s, redisstore.New(client, redisstore.Config{}), all, timeout, 0)
}

func TestAMasterOfAClusterIsKilledUnderLoad(t *testing.T) {
	const timeout = 300 * time.Millisecond
	c := redistest.StartClusterWithReplicas(t, 3)
	for _, node := range append(c.Nodes, c.Replicas...) {
		// By default, no node serves anything while a slot has no master.
		node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	client := c.Client()
	s := redisstore.New(client, redisstore.Config{})
	all := targets(t, "p")
	others, own := byOwner(c, all, 0)
	recovers(t, s, all)
	streams(t, c.Replicas[0])
	var before string
	under(s, all, timeout, func() {
		time.Sleep(300 * time.Millisecond)
		c.Nodes[0].Kill()
		c.WaitFailover(0)
		begin := time.Now()
		before = fmt.Sprint(recovers(t, s, own), " under load, ", time.Since(begin))
	})
	t.Logf("works again after %s; slowest: %v of others, %v of the one that was killed", before, slowestOf(others), slowestOf(own))
	noneFailed(t, others)
	recovers(t, s, all)
	// What had not reached the replica is lost: at most a full bucket.
	settled(t, s, redisstore.New(client, redisstore.Config{}), all, timeout, 1)
}

func TestSentinelFailsOverUnderLoad(t *testing.T) {
	const timeout = 200 * time.Millisecond
	sentinel := redistest.StartSentinelWithReplica(t)
	client := sentinel.Client()
	s := redisstore.New(client, redisstore.Config{})
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
	settled(t, s, redisstore.New(client, redisstore.Config{}), all, timeout, 1)
}
