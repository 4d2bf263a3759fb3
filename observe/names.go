package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// NamesConfig configures [NewNames]. The zero value is ready to use.
type NamesConfig struct {
	// Timeout is how long a lookup may take before its context ends. Default: 1 s.
	Timeout time.Duration

	// Logger receives a warning if a lookup fails, panics, or does not return when its context ends. Each of these is
	// logged at most once a minute. Default: slog.Default().
	Logger *slog.Logger
}

// Names finds the names of keys that say nothing to a person, such as hashes of API keys, in the program's own
// database. Set [LogConfig.Names] and the Names of the page in package admin to it; they can share one. The package
// comment has an example.
//
// Nobody waits for a lookup. At most 4 run at once; keys that were asked for most often are looked up first. Up to
// 1,024 keys are kept. A name is looked up again after 10 minutes. A key without a name, or whose lookup failed,
// is looked up again after a minute, and keeps the name that it had if the lookup failed.
//
// A Names is safe for concurrent use, also as nil, which has no names. It needs no closing.
type Names struct {
	lookup  func(ctx context.Context, policy, key string) (string, error)
	timeout time.Duration
	log     failure.Log

	mu      sync.Mutex
	keys    map[keyOfPolicy]*named
	running int
}

type keyOfPolicy struct{ policy, key string }

// A named is what is known of a key.
type named struct {
	name    string
	asked   int64     // how often
	last    time.Time // when it was asked for last
	until   time.Time // when it is looked up again, if it is asked for
	waiting bool      // for its lookup
	running bool      // its lookup
}

const (
	maxNames       = 1024
	maxNameLookups = 4

	keepName   = 10 * time.Minute
	keepNoName = time.Minute

	// maxName bounds a name, in bytes.
	maxName = 128
)

// NewNames returns Names that call lookup in the background. Its key is as the [ratelimit.KeyFunc] of the policy returned
// it. lookup returns "" for a key without a name. It should return when its context ends.
func NewNames(lookup func(ctx context.Context, policy, key string) (name string, err error), cfg NamesConfig) (*Names, error) {
	if lookup == nil {
		return nil, errors.New("observe: NewNames: lookup is nil: must be the function that finds the name of a key")
	}
	if cfg.Timeout < 0 {
		return nil, fmt.Errorf("observe: NewNames: NamesConfig.Timeout %v: must be positive; 0 means the default of 1s", cfg.Timeout)
	}
	return &Names{
		lookup:  lookup,
		timeout: cmp.Or(cfg.Timeout, time.Second),
		log:     failure.Log{Logger: cfg.Logger, Message: "observe: Names: the name of a key was not found", Level: slog.LevelWarn, Every: time.Minute},
		keys:    make(map[keyOfPolicy]*named),
	}, nil
}

// Name returns the name of a key at once, or "" while it is not known, or if the key is longer than 256 bytes. The name is
// cut after 128 bytes. If it has a backslash or unprintable characters, it is escaped as in a Go string.
func (n *Names) Name(policy, key string) string {
	if n == nil || max(len(policy), len(key)) > keyname.MaxShort {
		return ""
	}
	id, now := keyOfPolicy{policy, key}, time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.keys[id]
	if k == nil {
		n.makeRoom(now)
		id = keyOfPolicy{strings.Clone(policy), strings.Clone(key)} // which may be parts of a request
		k = new(named)
		n.keys[id] = k
	}
	k.asked++
	k.last = now
	if !k.running && !now.Before(k.until) {
		k.waiting = true
		n.start(id, k)
	}
	return k.name
}

// makeRoom forgets a key if there is no room for another one: the one that was asked for least often, or that was not
// asked for lately. So a flood of keys that come once takes no place of those that come again.
func (n *Names) makeRoom(now time.Time) {
	if len(n.keys) < maxNames {
		return
	}
	var least keyOfPolicy
	fewest := int64(math.MaxInt64)
	for id, k := range n.keys { // in random order
		asked := k.asked
		if now.Sub(k.last) > keepName {
			asked = 0
		}
		if asked < fewest {
			least, fewest = id, asked
		}
		if fewest <= 1 {
			break
		}
	}
	delete(n.keys, least)
}

// start looks k up, unless as many lookups run as may. The caller holds mu.
func (n *Names) start(id keyOfPolicy, k *named) {
	if n.running < maxNameLookups {
		n.running++
		k.waiting, k.running = false, true
		go n.find(id, k)
	}
}

// next looks up the key that was asked for most often, of those that wait. The caller holds mu.
func (n *Names) next() {
	var id keyOfPolicy
	var most *named
	for other, k := range n.keys {
		if k.waiting && (most == nil || k.asked > most.asked) {
			id, most = other, k
		}
	}
	if most != nil {
		n.start(id, most)
	}
}

// find looks k up, and then the next one.
func (n *Names) find(id keyOfPolicy, k *named) {
	name, err := "", errors.New("the lookup ended its goroutine")
	defer func() {
		if err != nil {
			n.log.LogKind(context.Background(), "failed", err, slog.String("policy", id.policy))
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		k.until = time.Now().Add(keepNoName)
		if err == nil {
			k.name = strings.Clone(logtext.Show(name, maxName)) // which may be a part of a large text
		}
		if err == nil && name != "" {
			k.until = time.Now().Add(keepName)
		}
		k.running = false
		n.running--
		n.next()
	}()
	name, err = n.call(id)
}

// call calls lookup. A panic in it is an error.
func (n *Names) call(id keyOfPolicy) (name string, err error) {
	ctx, end := context.WithTimeout(context.Background(), n.timeout)
	defer end()
	hangs := time.AfterFunc(2*n.timeout, func() {
		n.log.LogKind(ctx, "hangs", errors.New("the lookup goes on although its context has ended"), slog.String("policy", id.policy))
	})
	defer hangs.Stop()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if name, err = n.lookup(ctx, id.policy, id.key); err != nil {
		err = fmt.Errorf("%v", err) // whose Error may panic
	}
	return name, err
}
