// Package blocks contains only tests, of Block and LockFor: on all stores, over HTTP, in queues, and in random sequences.
package blocks_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	newLimiter   = ratetest.NewLimiter
	newClock     = ratetest.NewClock
	okHandler    = ratetest.OK
	get          = ratetest.Get
	from         = ratetest.From
	method       = ratetest.Method
	wantStatuses = ratetest.WantStatuses
	perIP        = ratetest.PerIP
	checkText    = ratetest.CheckText
	checkPanic   = ratetest.CheckPanic
	waiting      = ratetest.Waiting
	inBubble     = ratetest.InBubble
	arrive       = ratetest.Arrive
	settled      = ratetest.Settled
	costs        = ratetest.Costs
	answering    = ratetest.Answering
	query        = ratetest.Query
)

type (
	clock    = ratetest.Clock
	recorder = ratetest.Recorder
	queue    = ratetest.Queue
)

const address = ratetest.Address

// onEachStore runs a test on memory and on a real Redis, both of which go by c.
func onEachStore(t *testing.T, test func(t *testing.T, s store.Store, c *clock)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		c := newClock()
		s := ratelimit.Must(memstore.New(memstore.Config{Clock: c.Now}))
		defer s.Close()
		test(t, s, c)
	})
	t.Run("redis", func(t *testing.T) {
		c := newClock()
		test(t, ratelimit.Must(redisstore.New(redistest.Start(t).Client(), redisstore.Config{Clock: c.Now})), c)
	})
}
