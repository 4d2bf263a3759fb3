package admin

import (
	"maps"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

type counted struct {
	store.Store
	mu       sync.Mutex // guards the fields below
	redis    store.RedisStats
	fallback store.FallbackStats
}

func (c *counted) Stats() store.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	redis, fallback := c.redis, c.fallback
	redis.Errors = maps.Clone(redis.Errors)
	return store.Stats{Redis: &redis, Fallback: &fallback}
}

func TestSamplesKeepTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{redis: store.RedisStats{Errors: map[string]int64{}}}
		s := sampleStore(ratelimit.Must(ratelimit.New(ratelimit.Config{Store: c})))
		if h := s.history(); h != nil {
			t.Errorf("a history before the first step: %+v", h)
		}
		for i := range 200 {
			c.mu.Lock()
			c.redis.Calls += int64(i)
			c.redis.Errors["timeout"] += int64(2 * i)
			c.fallback.Away = i >= 190 && i < 195
			c.mu.Unlock()
			time.Sleep(sampleEvery)
			synctest.Wait()
		}
		h := s.history()
		if len(h.Calls) != 120 || len(h.Failed) != 120 || len(h.Away) != 120 {
			t.Fatalf("%d, %d and %d steps, want 120", len(h.Calls), len(h.Failed), len(h.Away))
		}
		for i := range h.Calls {
			if of := int64(80 + i); h.Calls[i] != of || h.Failed[i] != 2*of || h.Away[i] != (of >= 190 && of <= 195) {
				t.Errorf("step %d: %d calls, %d failed, away %t", of, h.Calls[i], h.Failed[i], h.Away[i])
			}
		}
		if !h.Until.Equal(time.Now()) {
			t.Errorf("until %v, now is %v", h.Until, time.Now())
		}
		runtime.KeepAlive(s)
	})
}

// A page that is dropped does not go on to take samples.
func TestSamplesEndWithThePage(t *testing.T) {
	s := sampleStore(ratelimit.Must(ratelimit.New(ratelimit.Config{})))
	w := weak.Make(s)
	runtime.KeepAlive(s)
	s = nil
	runtime.GC()
	if w.Value() != nil {
		t.Error("the timer keeps the samples")
	}
}
