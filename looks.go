package ratelimit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// lookEvery is how often a bucket is read for [Limiter.Usage], and so how old the answer may be.
	lookEvery = 100 * time.Millisecond

	// maxLooks bounds the buckets that are remembered, because clients choose keys.
	maxLooks = 1024
)

// looks are buckets that were read a moment ago. The zero value is ready to use.
type looks struct {
	mu   sync.Mutex
	kept map[lookedAt]*look
}

// A lookedAt is a bucket and the limit under which it was read. Its key is short: see [keyname.Short].
type lookedAt struct {
	policy, key string
	limit       store.Limit
}

// A look is the state of a bucket as it was read.
type look struct {
	began time.Time
	done  chan struct{} // closed when the fields below are set

	state store.State
	at    time.Time
	err   error // kept, too: a Store that fails must not be asked more often
}

// fresh reports whether a look is under way, or young enough for a further request.
func (k *look) fresh(now time.Time) bool {
	select {
	case <-k.done:
		return now.Sub(k.began) < lookEvery
	default:
		return true
	}
}

// read returns looks at the buckets of charges, which take no tokens. It calls ask once, for all buckets that no other request
// has read a moment ago or is reading.
func (ls *looks) read(ctx context.Context, charges []store.Charge, ask func(context.Context, []store.Charge, []store.State) error) ([]*look, error) {
	all, own, asked := ls.of(charges)
	if len(own) > 0 {
		finish(own, func(states []store.State) error { return ask(ctx, asked, states) })
	}
	for _, k := range all {
		<-k.done // which takes no longer than another call of ask
		if k.err != nil {
			return nil, k.err
		}
	}
	return all, nil
}

// finish ends looks by what ask says of their buckets. Others wait for them, so it ends them also if ask panics.
func finish(own []*look, ask func([]store.State) error) {
	states, err := make([]store.State, len(own)), errors.New("the Store panicked")
	defer func() {
		at := time.Now()
		for i, k := range own {
			k.state, k.at, k.err = states[i], at, err
			close(k.done)
		}
	}()
	err = ask(states)
}

// of returns a look for each charge. own are those that the caller has to finish, by asked.
func (ls *looks) of(charges []store.Charge) (all, own []*look, asked []store.Charge) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.kept == nil {
		ls.kept = make(map[lookedAt]*look)
	}
	for _, c := range charges {
		id := lookedAt{c.Policy, keyname.Short(c.Key), c.Limit}
		k := ls.kept[id]
		if k == nil || !k.fresh(now) {
			ls.makeRoom(id)
			k = &look{began: now, done: make(chan struct{})}
			id.key = strings.Clone(id.key) // which may be a part of a long header
			ls.kept[id] = k
			own, asked = append(own, k), append(asked, c)
		}
		all = append(all, k)
	}
	return all, own, asked
}

// makeRoom forgets a look if there is no room for another one. A map has no order, so no client chooses which.
func (ls *looks) makeRoom(id lookedAt) {
	if _, has := ls.kept[id]; has || len(ls.kept) < maxLooks {
		return
	}
	for other := range ls.kept {
		delete(ls.kept, other)
		return
	}
}
