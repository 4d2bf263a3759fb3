//go:build unix

package slots_test

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

// A name is that of a bucket.
type name struct{ policy, key string }

// A span is the time in which a replica held a slot, as its handler saw it.
type span struct {
	name
	from, to time.Time
}

// spansOf returns the spans of a process that has ended at the time end, if it has.
func spansOf(p *testprogram.Program, end time.Time) (spans []span) {
	open := make(map[string]int)
	began, ended := p.Lines("+"), p.Lines("-")
	for _, line := range began {
		open[line.Words[3]] = len(spans)
		spans = append(spans, span{name{line.Words[1], line.Words[2]}, line.At, end})
	}
	for _, line := range ended {
		if i, ok := open[line.Words[3]]; ok {
			spans[i].to = line.At
		}
	}
	return spans
}

// most returns the largest number of spans of each name at one time.
func most(spans []span) map[name]int {
	type step struct {
		at    time.Time
		delta int
		name
	}
	var steps []step
	for _, s := range spans {
		if s.from.Before(s.to) {
			steps = append(steps, step{s.from, 1, s.name}, step{s.to, -1, s.name})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), a.delta-b.delta) })
	now, top := make(map[name]int), make(map[name]int)
	for _, s := range steps {
		now[s.name] += s.delta
		top[s.name] = max(top[s.name], now[s.name])
	}
	return top
}

// A watch looks at the slots that Redis counts.
type watch struct {
	testing.TB
	client *redis.Client

	mu       sync.Mutex
	top      map[name]int64       // the most that were held at once
	lastSeen map[string]time.Time // of each holder, that a slot of it counts
}

// look reads the holders of keys whose end has not come, by the clock of Redis: the number of the key, the holder, its count.
var look = redis.NewScript(`
local time = redis.call('TIME')
local now, reply = time[1] * 1000000 + time[2], {}
for i, key in ipairs(KEYS) do
  local fields = redis.call('HGETALL', key)
  for j = 1, #fields, 2 do
    local holder = string.match(fields[j], '^held_by:(.+)$')
    local count, ends = string.match(fields[j + 1], '^(%d+) (%d+) %d+$')
    if holder and ends - now > 0 then
      table.insert(reply, i .. ' ' .. holder .. ' ' .. count)
    end
  end
end
return reply`)

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	var names []name
	var hashes []string
	for _, p := range policies {
		for _, key := range keys {
			names = append(names, name{p.Name, key})
			hashes = append(hashes, "ratelimit:{"+key+"}:"+p.Name)
		}
	}
	for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		reply, err := look.Run(ctx, w.client, hashes).StringSlice()
		if err != nil {
			if ctx.Err() == nil {
				w.Errorf("look: %v", err)
			}
			return
		}
		w.count(names, reply, time.Now())
	}
}

func (w *watch) count(names []name, reply []string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(map[name]int64)
	for _, line := range reply {
		words := strings.Fields(line)
		i, _ := strconv.Atoi(words[0])
		n, _ := strconv.ParseInt(words[2], 10, 64)
		held[names[i-1]] += n
		if n > 0 {
			w.lastSeen[words[1]] = now
		}
	}
	for of, n := range held {
		w.top[of] = max(w.top[of], n)
	}
}

// holders returns the holders whose slots have counted lately.
func (w *watch) holders() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for holder, at := range w.lastSeen {
		if time.Since(at) < time.Second {
			all = append(all, holder)
		}
	}
	return all
}
