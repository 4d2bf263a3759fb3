package command

import (
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// WatchEvery makes top -watch look more often, until the test has ended.
func WatchEvery(d time.Duration) (undo func()) {
	old := watchEvery
	watchEvery = d
	return func() { watchEvery = old }
}

// A Listed is a command as the guide has it.
type Listed struct {
	Name, Args, Short string
	Examples          []string
}

// List returns all commands.
func List() (all []Listed) {
	for _, c := range commands {
		all = append(all, Listed{Name: c.name, Args: c.args, Short: c.short, Examples: c.examples})
	}
	return all
}

// ProgressText is what a simulation says after some time.
func ProgressText(read, size int64, took time.Duration) string {
	return (&progress{read: read, size: size}).text(took)
}

// BucketText is what peek writes of a bucket.
func BucketText(r *ratelimit.Bucket) string {
	var b strings.Builder
	newBucket(r, time.Now()).write(&env{out: &b})
	return b.String()
}

// WidthOf returns how many columns a terminal has.
var WidthOf = widthOf
