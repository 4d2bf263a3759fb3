package ratetest

import (
	"sync"
	"time"
)

// A Clock is the time of a test.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock at the present time.
func NewClock() *Clock { return &Clock{now: time.Now().Truncate(time.Microsecond)} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
