//go:build unix

package main

import (
	"syscall"
	"time"
)

// processCPU returns the processor time that this process has used in user and system mode.
func processCPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it fails only for wrong arguments
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
