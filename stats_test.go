package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestStatsCountTheRequestsThatWait(t *testing.T) {
	p := waiting(perIP("api", ratelimit.PerSecond(1)), time.Minute)
	inBubble(t, ratelimit.Config{MaxWaiting: 8}, func(t *testing.T, q *queue) {
		want := func(waiting int) {
			t.Helper()
			if s := q.Stats(); s.Waiting != waiting || s.MaxWaiting != 8 {
				t.Errorf("%d of %d wait, want %d of 8", s.Waiting, s.MaxWaiting, waiting)
			}
		}
		want(0)
		h := q.Limit(p)(okHandler)
		first, second := arrive(h, t.Context()), arrive(h, t.Context())
		want(1)
		third := arrive(h, t.Context())
		want(2)
		ctx, stop := context.WithCancel(t.Context())
		go q.Wait(ctx, p, "another", 1)
		synctest.Wait()
		want(2) // it had its token at once
		go q.WaitAll(ctx, ratelimit.Charge{Policy: p, Key: "another"})
		synctest.Wait()
		want(3)
		stop()
		synctest.Wait()
		want(2)
		third.leave()
		synctest.Wait()
		want(1)
		first.want(t, 200, 0)
		second.want(t, 200, time.Second)
		want(0)
	})
}

func TestTheDefaultOfMaxWaitingIsInTheStats(t *testing.T) {
	if s := newLimiter(t, ratelimit.Config{}).Stats(); s.Waiting != 0 || s.MaxWaiting != 1024 {
		t.Errorf("%+v", s)
	}
}

// reporting is a Store with Stats.
type reporting struct{ store.Store }

func (reporting) Stats() store.Stats {
	return store.Stats{Denials: &store.DenialStats{Answered: 7}, Waiting: 99}
}

// wrapped is a decorator of somebody who knows nothing of Stats.
type wrapped struct{ store.Store }

func (w wrapped) Unwrap() store.Store { return w.Store }

func TestStatsAreThoseOfTheStoreThroughWhatWrapsIt(t *testing.T) {
	s := memstore.New(memstore.Config{})
	defer s.Close()
	for name, outer := range map[string]store.Store{"the store": reporting{s}, "a decorator": wrapped{wrapped{reporting{s}}}} {
		got := newLimiter(t, ratelimit.Config{Store: outer}).Stats()
		if got.Denials == nil || got.Denials.Answered != 7 || got.Waiting != 0 || got.MaxWaiting != 1024 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, foreign := range map[string]store.Store{"a foreign store": bare{s}, "wrapped": wrapped{bare{s}}, "nothing inside": wrapped{}} {
		if got := newLimiter(t, ratelimit.Config{Store: foreign}).Stats(); got != (store.Stats{MaxWaiting: 1024}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
