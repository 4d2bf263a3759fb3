package command

import (
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/simulate"
)

// WatchEvery makes top -watch look more often, until the test has ended.
func WatchEvery(d time.Duration) (undo func()) {
	old := watchEvery
	watchEvery = d
	return func() { watchEvery = old }
}

// A Listed is a command as the guide has it.
type Listed struct {
	Name, Args, Short, Statuses string
	Flags                       [][2]string // "-name VALUE" and what it does, without those of Redis
	Redis                       bool        // it has the flags of Redis
	Examples                    []string
}

// List returns all commands.
func List() (all []Listed) {
	ofRedis := newFlags(func(string) string { return "" })
	defineRedis(ofRedis)
	for _, c := range commands {
		f := newFlags(func(string) string { return "" })
		c.prepare(f)
		l := Listed{Name: c.name, Args: c.args, Short: c.short, Statuses: c.statuses, Examples: c.examples, Redis: f.set.Lookup("redis") != nil}
		for _, row := range f.rows() {
			name, _, _ := strings.Cut(row[0][1:], " ")
			if !l.Redis || ofRedis.set.Lookup(name) == nil {
				l.Flags = append(l.Flags, row)
			}
		}
		all = append(all, l)
	}
	return all
}

// RedisFlags returns the flags that many commands have.
func RedisFlags() [][2]string {
	f := newFlags(func(string) string { return "" })
	defineRedis(f)
	return f.rows()
}

// ProgressText is what a simulation says after some time.
func ProgressText(bar bool, took time.Duration, at simulate.Progress) string {
	now := time.Now()
	return (&progress{bar: bar, begun: now.Add(-took)}).text(at, now)
}
