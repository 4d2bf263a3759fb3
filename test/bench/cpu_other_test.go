//go:build !unix

package main

import "time"

// processCPU returns 0. The tables then have no CPU of Go.
func processCPU() time.Duration { return 0 }
