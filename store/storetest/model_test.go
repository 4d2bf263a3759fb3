package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// plain is the model of integers as a Store: the plainest that there is.
type plain struct {
	clock func() time.Time
	mu    sync.Mutex
	integers
}

func (p *plain) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if err := store.Validate(charges, states); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("plain: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ok, got := p.take(charges, p.clock().UnixMicro())
	copy(states, got)
	return ok, nil
}

func (p *plain) Inspect(ctx context.Context, policy, key string) (store.Bucket, error) {
	if err := store.ValidateName(policy, key); err != nil {
		return store.Bucket{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Bucket{}, fmt.Errorf("plain: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k, now := p.integers[name{policy, key}], p.clock().UnixMicro()
	if k.limit == (store.Limit{}) {
		return store.Bucket{}, nil
	}
	left := time.Duration(k.shut.Left(now)) * time.Microsecond
	return store.Bucket{Limit: k.limit, Credits: k.Tokens, Age: k.Age(now), Blocked: left, Locked: left > 0 && k.shut.Lock}, nil
}

func (p *plain) Forget(time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.full(p.clock().UnixMicro()) {
		p.forget(n)
	}
}

func TestRulesHoldForTheModel(t *testing.T) {
	open := func(_ *testing.T, clock func() time.Time) store.Store {
		return &plain{clock: clock, integers: integers{}}
	}
	for _, rules := range [][]rule{chargeRules, timeRules, relimitRules, waitRules, owedRules, setRules, callRules, resetRules, blockRules, lockRules, inspectRules, concurrencyRules} {
		for _, rule := range rules {
			t.Run(rule.name, func(t *testing.T) { rule.test(newRig(t, open)) })
		}
	}
	t.Run("a random sequence of calls is answered alike by both models", func(t *testing.T) {
		RunSequence(t, open, 5000, 1)
		RunForgetting(t, open, 5000, 2)
	})
}

func TestRunDecorator(t *testing.T) {
	RunDecorator(t, func(_ *testing.T, inner store.Store) store.Store { return deniesNothing{inner} })
}

type deniesNothing struct{ store.Store }

func (d deniesNothing) Stats() store.Stats {
	s := store.StatsOf(d.Store)
	s.Denials = new(store.DenialStats)
	return s
}
