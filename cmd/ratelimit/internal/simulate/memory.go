package simulate

import (
	"math"
	"slices"

	"github.com/go-tokenbucket/ratelimit"
)

const (
	// baseMemory is what a run takes for any number of clients: the log on its way, and what the collector has not
	// collected yet.
	baseMemory = 96 << 20

	// bucketMemory is what a bucket of package memstore takes, with a key of maxKey bytes, and lockMemory what its lock
	// takes.
	bucketMemory = 110 + maxKey
	lockMemory   = 120

	// queueMemory is what the requests take that wait, as many as Config.MaxWaiting of a limiter lets wait by default.
	queueMemory = 1024*waiterMemory + maxKept
)

// buckets returns how many buckets are kept. Shards of the store hold not the same number.
func (cfg *Config) buckets(policies int) int {
	return int(min(math.MaxInt32, int64(cfg.Clients)*int64(max(1, policies))*6/5+4096))
}

// Memory returns how many bytes a run takes at most.
func (cfg Config) Memory() int64 {
	if cfg.Clients == 0 {
		cfg.Clients = defaultClients
	}
	return cfg.memory(setupOf(cfg.Policies).policies)
}

func (cfg *Config) memory(all []ratelimit.Policy) int64 {
	base, policies := int64(baseMemory), len(all)
	if slices.ContainsFunc(all, func(p ratelimit.Policy) bool { return p.MaxWait > 0 }) {
		base += queueMemory
	}
	each := cellSize*int64(cfg.Clients)*int64(policies) + (bucketMemory+lockMemory)*int64(cfg.buckets(policies))
	return base + each/8*9
}
