package command

import (
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
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

// rows returns the flags by name: "-name VALUE" and what it does.
func rows(f *flags) (rows [][2]string) {
	for _, flag := range f.list {
		usage := flag.(cli.DocGenerationFlag).GetUsage()
		value := ""
		if parts := strings.Split(usage, "`"); len(parts) == 3 {
			value, usage = " "+parts[1], strings.Join(parts, "")
		}
		rows = append(rows, [2]string{"-" + flag.Names()[0] + value, usage})
	}
	slices.SortFunc(rows, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return rows
}

// RedisFlags returns the flags that many commands have.
func RedisFlags() [][2]string {
	f := new(flags)
	defineRedis(f)
	return rows(f)
}

// ProgressText is what a simulation says after some time.
func ProgressText(read, size int64, took time.Duration) string {
	return (&progress{read: read, size: size}).text(took)
}
