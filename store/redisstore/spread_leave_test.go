package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// An interruption is a hook that calls do before a command for a key. If do returns an error, the command is not sent.
type interruption struct {
	key   string // as it is in Redis
	after int    // so many other commands for it
	do    func() error
	met   atomic.Int64
}

// hook is that of a client.
func (h *interruption) hook(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
	if h.do != nil && slices.Contains(cmd.Args(), any(h.key)) && h.met.Add(1) == int64(h.after)+1 {
		if err := h.do(); err != nil {
			return err
		}
	}
	return send(ctx, cmd)
}

// onMasters returns a key on each master.
func onMasters(cluster *redistest.Cluster) []string {
	keys := make([]string, len(cluster.Nodes))
	for i := 0; slices.Contains(keys, ""); i++ {
		key := fmt.Sprint("k", i)
		keys[cluster.Owner(cluster.Slot(key))] = key
	}
	return keys
}

// A call over three masters has been allowed by two of them when its last command is sent, and then its caller leaves or
// the command fails. The two buckets get their tokens back.
func TestACallOverSeveralPlacesThatEndsInItsLastCommandGivesBackWhatItTook(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	keys := onMasters(cluster)
	broken := errors.New("connection reset")
	shadow := func(c *store.Charge) { c.Shadow = true }
	owed := func(c *store.Charge) { c.Owed = true }
	refund := func(c *store.Charge) { c.Cost = -1 }
	for name, tt := range map[string]struct {
		last   func(*store.Charge)
		atOnce bool
		looks  int  // commands for the last bucket before the one that charges it
		fails  bool // the command, and else the caller leaves
		left   int64
	}{
		"a shadow, in turn":           {last: shadow, looks: 1, left: 9},
		"a shadow, at once":           {last: shadow, atOnce: true, left: 9},
		"an owed charge, in turn":     {last: owed, looks: 1, left: 8},
		"an owed charge, at once":     {last: owed, atOnce: true, looks: 1, left: 8},
		"a refund, in turn":           {last: refund, looks: 1, left: 10},
		"a refund, at once":           {last: refund, atOnce: true, looks: 1, left: 10},
		"a failed owed one, in turn":  {last: owed, looks: 1, fails: true, left: 9},
		"a failed owed one, at once":  {last: owed, atOnce: true, looks: 1, fails: true, left: 9},
		"a failed refund, at once":    {last: refund, atOnce: true, looks: 1, fails: true, left: 9},
		"a failed refund, in turn":    {last: refund, looks: 1, fails: true, left: 9},
		"a call that fails at a look": {last: owed, fails: true, left: 9},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := redisstore.Config{Prefix: prefix(), MaxDenials: -1, CrossSlot: redisstore.CrossSlotNever}
			client := cluster.Client()
			h := new(interruption)
			client.AddHook(hook(h.hook))
			s := openKnown(t, client, cfg)
			charges := make([]store.Charge, len(keys))
			for i, key := range keys {
				charges[i] = store.Charge{Policy: fmt.Sprint("p", i), Key: key, Limit: limit(t, 10, month, 10), Cost: 1}
			}
			take(t, s, charges[2]) // so that a refund has room
			tt.last(&charges[2])
			refused := slices.Clone(charges)
			refused[0].Cost = 11
			for range 2 { // at once and in turn, so that the servers have all scripts
				wantRefused(t, s, refused...)
			}
			if tt.atOnce {
				redisstore.ForgetRefusals(s)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			returned := make(chan struct{})
			want, do := context.Canceled, func() error { leave(); <-returned; return nil }
			if tt.fails {
				want, do = broken, func() error { return broken }
			}
			h.key, h.after, h.do = cfg.Prefix+":{"+keys[2]+"}:p2", tt.looks, do
			ok, err := tryIn(ctx, s, charges...)
			close(returned)
			if ok || !errors.Is(err, want) {
				t.Errorf("ok %t, error %v, want %v", ok, err, want)
			}
			if h.met.Load() <= int64(tt.looks) {
				t.Fatal("the command was not sent")
			}
			s.Close() // waits for what is given back
			direct := openKnown(t, cluster.Client(), cfg)
			defer direct.Close()
			for i, want := range []int64{10, 10, tt.left} {
				wantLeft(t, direct, want, charges[i])
			}
		})
	}
}
