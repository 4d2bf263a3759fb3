package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxUsed is the part of maxmemory above which a server counts as nearly full.
const maxUsed = 0.9

// info is the reply to INFO.
type info map[string]string

func parseInfo(text string) info {
	facts := make(info)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}

// number returns 0 for a missing field.
func (f info) number(name string) float64 {
	n, _ := strconv.ParseFloat(f[name], 64)
	return n
}

// evicts returns the problem of the eviction policy, if any.
func (f info) evicts() string {
	policy := f["maxmemory_policy"]
	if f.number("maxmemory") == 0 || policy == "" || policy == "noeviction" {
		return ""
	}
	return fmt.Sprintf("Redis evicts buckets when its memory is full, because its maxmemory-policy is %s, and an evicted bucket is a full one: set it with CONFIG SET maxmemory-policy noeviction, or give the limiter a Redis of its own.", policy)
}

// full returns the problem of the free memory, if any.
func (f info) full() string {
	used := f.number("used_memory") / f.number("maxmemory") // NaN or infinite without a maxmemory
	if f.evicts() != "" || math.IsInf(used, 0) || !(used >= maxUsed) {
		return ""
	}
	return fmt.Sprintf("Redis uses %.0f %% of its maxmemory, and refuses to charge buckets when it is full: raise it with CONFIG SET maxmemory, or give the limiter a Redis of its own.", 100*used)
}
