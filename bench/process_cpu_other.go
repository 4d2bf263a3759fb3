//go:build !unix

package main

import "time"

// processCPU returns 0: the tables then show no CPU of Go.
func processCPU() time.Duration { return 0 }
