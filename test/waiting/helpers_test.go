// Package waiting contains only tests, of requests that wait: those of crowds, and those of several processes.
package waiting_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

func TestMain(m *testing.M) {
	if waitHere() {
		return
	}
	goleak.VerifyTestMain(m)
}

var (
	newLimiter = ratetest.NewLimiter
	okHandler  = ratetest.OK
	get        = ratetest.Get
	from       = ratetest.From
	perIP      = ratetest.PerIP
	waiting    = ratetest.Waiting
	inBubble   = ratetest.InBubble
	arrive     = ratetest.Arrive
)

type queue = ratetest.Queue
