package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// routes finds the lane to the server of a key: there is one for each master of a cluster and each shard of a
// ring, so that one that hangs does not keep calls from the others.
type routes struct {
	engine  *engine
	cluster *redis.ClusterClient // or nil
	ring    *redis.Ring          // or nil

	// The lane of a single server, and of a cluster of which nothing is known yet. Whoever asks the client
	// for a node then waits for a server, and not only until the deadline of a context.
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

func (r *routes) to(server *redis.Client) *lane {
	addr := server.Options().Addr
	l, ok := r.byAddr.Load(addr)
	if !ok {
		made := &lane{engine: r.engine}
		if r.cluster != nil {
			made.crossing.init(r.engine.crossSlot)
		}
		l, _ = r.byAddr.LoadOrStore(addr, made)
	}
	return l.(*lane)
}

func (r *routes) each(f func(*lane)) {
	f(&r.only)
	r.byAddr.Range(func(_, l any) bool {
		f(l.(*lane))
		return true
	})
}

// answered notes that the client has reached a server: of a cluster, it knows the nodes from then on.
func (r *routes) answered() {
	if !r.known.Load() {
		r.known.Store(true)
	}
}

// moving reports whether err says that a cluster does not serve a slot at the moment, or another node does
// after all. The command was not carried out.
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

// failed has a cluster's client look for the nodes again, which after a lost connection it does only when its
// ClusterStateReloadInterval has passed.
func (r *routes) failed(ctx context.Context) {
	if r.cluster != nil {
		r.cluster.ReloadState(ctx)
	}
}
