package main

import (
	"testing"
	"time"
)

func TestUsageIsTheCPUOfTheServerAndTheTimeOfScripts(t *testing.T) {
	const info = "# CPU\r\nused_cpu_sys:0.100\r\nused_cpu_user:1.250\r\nused_cpu_sys_children:7.0\r\nused_cpu_user_main_thread:9.0\r\n" +
		"\r\n# Commandstats\r\ncmdstat_evalsha:calls=3,usec=27,usec_per_call=9.00,rejected_calls=0,failed_calls=0\r\ncmdstat_get:calls=5,usec=50\r\n"
	got, err := parseUsage(info)
	if want := (redisUsage{1350 * time.Millisecond, 27 * time.Microsecond}); err != nil || got != want {
		t.Errorf("%+v, error %v, want %+v", got, err, want)
	}
	if got, err := parseUsage("used_cpu_sys:1.2.3\r\n"); err == nil {
		t.Errorf("%+v of what is no number", got)
	}
}

func TestUsageOfSeveralServersAddsUp(t *testing.T) {
	first, second := redisUsage{3, 5}, redisUsage{10, 20}
	if got, want := first.plus(second), (redisUsage{13, 25}); got != want {
		t.Errorf("plus: %+v, want %+v", got, want)
	}
	if got, want := second.minus(first), (redisUsage{7, 15}); got != want {
		t.Errorf("minus: %+v, want %+v", got, want)
	}
}
