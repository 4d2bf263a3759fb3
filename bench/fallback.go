package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func init() { register(nearby, "fallback.Store", fallbacks) }

// fallbacks measures the cost that a fallback adds to a decision in memory, and the cost of a fallback whose primary
// is unavailable.
func fallbacks(ctx context.Context, p plan) (findings, error) {
	memory := memstore.New(memstore.Config{})
	defer memory.Close()
	quiet := fallback.Config{Logger: slog.New(slog.DiscardHandler)}
	healthy := fallback.New(memory, nil, quiet)
	defer healthy.Close()
	away := fallback.New(gone{}, nil, quiet)
	defer away.Close()
	broken := breaking{memory, gobreaker.NewCircuitBreaker[bool](gobreaker.Settings{})}

	found, err := fallbackDecisions(ctx, p, memory, healthy, away, broken)
	if err != nil {
		return findings{}, err
	}
	more, err := fallbackRequests(ctx, p, memory, healthy, broken)
	found.add(more)
	return found, err
}

// fallbackDecisions compares single decisions. Their contexts have no deadline, so a fallback must set one.
func fallbackDecisions(ctx context.Context, p plan, memory, healthy, away, broken store.Store) (findings, error) {
	limit, err := store.NewLimit(1, time.Second, 1_000_000_000)
	if err != nil {
		return findings{}, err
	}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("member:%08d", i)
	}
	var subjects []*subject
	for _, s := range []store.Store{memory, healthy, away, broken} {
		fill := taking(s, limit)
		for _, key := range keys {
			fill(key)
		}
		subjects = append(subjects, newSubject(fmt.Sprintf("%T", s), [2]float64{1, 1}, func(id int) worker {
			return taker(taking(s, limit), keys, uint64(id))
		}))
	}
	if err := measureParallel(ctx, p, subjects...); err != nil {
		return findings{}, err
	}
	plain := subjects[0].ns
	const what = "fallback.Store, 10,000 keys, "
	return findings{rows: []row{
		{what + "healthy, without a deadline: what it adds to memstore.Take, against sony/gobreaker v2", subjects[1].ns.minus(plain), subjects[3].ns.minus(plain), nanoseconds, bound{}},
		{what + "the primary away: the whole decision, against memstore.Take", subjects[2].ns, plain, nanoseconds, atMost(1000, nanoseconds)},
	}}, nil
}

// fallbackRequests compares the cost of requests.
func fallbackRequests(ctx context.Context, p plan, memory, healthy, broken store.Store) (findings, error) {
	var subjects []*subject
	for _, s := range []store.Store{memory, healthy, broken} {
		h := limited(s, ratelimit.RemoteIP(), http.HandlerFunc(greet))
		subjects = append(subjects, newSubject(fmt.Sprintf("%T", s), [2]float64{1, 1}, func(id int) worker {
			return server(h, byPeer, id)
		}))
	}
	if err := measureParallel(ctx, p, subjects...); err != nil {
		return findings{}, err
	}
	plain := subjects[0].ns
	return findings{rows: []row{{
		"fallback.Store, healthy: what it adds to a request on memstore, against sony/gobreaker v2",
		subjects[1].ns.minus(plain), subjects[2].ns.minus(plain), nanoseconds, atMost(150, nanoseconds),
	}}}, nil
}

// gone is a Store that is unavailable.
type gone struct{}

func (gone) Take(context.Context, []store.Charge, []store.State) (bool, error) {
	return false, errors.New("gone")
}

// breaking is a Store behind a circuit breaker.
type breaking struct {
	store.Store
	breaker *gobreaker.CircuitBreaker[bool]
}

func (s breaking) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	return s.breaker.Execute(func() (bool, error) { return s.Store.Take(ctx, charges, states) })
}
