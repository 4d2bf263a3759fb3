package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// A redisUsage is the cost in servers since their start, or during some work.
type redisUsage struct {
	cpu    time.Duration
	script time.Duration // elapsed time, with the commands that scripts call
}

func (u redisUsage) plus(other redisUsage) redisUsage {
	return redisUsage{u.cpu + other.cpu, u.script + other.script}
}

func (u redisUsage) minus(other redisUsage) redisUsage {
	return redisUsage{u.cpu - other.cpu, u.script - other.script}
}

// parseUsage reads a server's INFO.
func parseUsage(info string) (redisUsage, error) {
	var u redisUsage
	for _, match := range usageFields.FindAllStringSubmatch(info, -1) {
		value, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return redisUsage{}, fmt.Errorf("INFO: %q: %w", match[0], err)
		}
		if match[1] == "cmdstat_evalsha:calls" {
			u.script += time.Duration(value * float64(time.Microsecond))
		} else {
			u.cpu += time.Duration(value * float64(time.Second))
		}
	}
	return u, nil
}

// "used_cpu_sys:0.1", "cmdstat_evalsha:calls=3,usec=27,usec_per_call=9.00"
var usageFields = regexp.MustCompile(`(?m)^(used_cpu_sys|used_cpu_user|cmdstat_evalsha:calls)(?:=\d+,usec=|:)([\d.]+)`)
