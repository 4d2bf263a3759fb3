package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// routes finds the lane to the server of a key. Each master of a cluster and each shard of a ring has its own lane,
// so that a server that hangs does not block calls to the others.
type routes struct {
	engine  *engine
	cluster *redis.ClusterClient // or nil
	ring    *redis.Ring          // or nil

	// The lane of a single server, and of a cluster whose nodes are not known yet. To ask the client for a node, a
	// caller would have to wait for a server, also beyond the deadline of its context.
	only  lane
	known atomic.Bool

	byAddr sync.Map // of *lane
}

func (r *routes) lane(key string) (*lane, error) {
	switch {
	case r.ring != nil:
		shard, err := r.ring.GetShardClientForKey(key)
		if err != nil {
			return nil, fmt.Errorf("redisstore: %w", err)
		}
		return r.to(shard), nil
	case r.cluster != nil && r.known.Load():
		master, err := r.cluster.MasterForKey(context.Background(), key)
		if err != nil {
			return nil, fmt.Errorf("redisstore: %w", err)
		}
		return r.to(master), nil
	default:
		return &r.only, nil
	}
}

// laneOf returns the lane for c.
func (r *routes) laneOf(c *call) (*lane, error) {
	l, err := r.lane(c.items[0].name)
	switch {
	case err != nil:
		return nil, err
	case c.asserts():
		return l.asserting, nil
	case c.acquires():
		return l.acquiring, nil
	}
	return l, nil
}

func (r *routes) to(server *redis.Client) *lane {
	addr := server.Options().Addr
	l, ok := r.byAddr.Load(addr)
	if !ok {
		made := new(lane).init(r.engine)
		if r.cluster != nil {
			made.crossing.init(r.engine.crossSlot)
		}
		l, _ = r.byAddr.LoadOrStore(addr, made)
	}
	return l.(*lane)
}

func (r *routes) each(f func(*lane)) {
	all := func(_, server any) bool {
		l := server.(*lane)
		f(l)
		f(l.acquiring)
		f(l.asserting)
		return true
	}
	all(nil, &r.only)
	r.byAddr.Range(all)
}

// answered notes that the client has reached a server. The client of a cluster knows the nodes from then on.
func (r *routes) answered() {
	if !r.known.Load() {
		r.known.Store(true)
	}
}

// moving reports whether err means that a cluster does not serve a slot at the moment, or that another node serves
// it. The command was not carried out.
func (r *routes) moving(err error) bool {
	if r.cluster == nil {
		return false
	}
	for _, prefix := range [...]string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// failed makes the client of a cluster look up the nodes again. After a lost connection, the client does so only when
// its ClusterStateReloadInterval has passed.
func (r *routes) failed(ctx context.Context) {
	if r.cluster != nil {
		r.cluster.ReloadState(ctx)
	}
}
