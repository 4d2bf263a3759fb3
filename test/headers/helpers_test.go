// Package headers contains only tests. They check that a client that relies on the headers alone is never denied against
// their promise, and that the structured fields are well-formed.
package headers_test

import (
	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
)

var (
	newLimiter = ratetest.NewLimiter
	okHandler  = ratetest.OK
	get        = ratetest.Get
	with       = ratetest.With
	perIP      = ratetest.PerIP
	newClock   = ratetest.NewClock
)

func result(name string, limit ratelimit.Limit, s store.State) ratelimit.Result {
	return ratelimit.Result{Policy: name, Key: "ip:192.0.2.1", Limit: limit, Cost: 1, State: s}
}
