package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// minVersion is the Redis that lets a script write after it has read the clock, because it replicates what a
// script did, and not the script.
const minVersion = 5

// maxUsed is the part of maxmemory from which on it is about to be full.
const maxUsed = 0.9

// info is what a server tells of itself.
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

// number returns 0 for what is not told.
func (f info) number(name string) float64 {
	n, _ := strconv.ParseFloat(f[name], 64)
	return n
}

// evicts returns what is wrong with what happens when there is no memory left.
func (f info) evicts() string {
	policy := f["maxmemory_policy"]
	if f.number("maxmemory") == 0 || policy == "" || policy == "noeviction" {
		return ""
	}
	return fmt.Sprintf("Redis evicts buckets when its memory is full, because its maxmemory-policy is %s, and an evicted bucket is a full one: set it with CONFIG SET maxmemory-policy noeviction, or give the limiter a Redis of its own.", policy)
}

// full returns what is wrong with how much memory there is left.
func (f info) full() string {
	used := f.number("used_memory") / f.number("maxmemory") // NaN or infinite without a maximum
	if f.evicts() != "" || math.IsInf(used, 0) || !(used >= maxUsed) {
		return ""
	}
	return fmt.Sprintf("Redis uses %.0f %% of its maxmemory, and refuses to charge buckets when it is full: raise it with CONFIG SET maxmemory, or give the limiter a Redis of its own.", 100*used)
}

// tooOld returns what is wrong with the version.
func (f info) tooOld() string {
	version := f["redis_version"]
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil || major >= minVersion {
		return ""
	}
	return fmt.Sprintf("Redis %s is too old for the script, which reads the clock before it writes: use Redis %d or newer.", version, minVersion)
}
