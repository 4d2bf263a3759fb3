package ratelimit_test

import (
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

var (
	newLimiter    = ratetest.NewLimiter
	okHandler     = ratetest.OK
	get           = ratetest.Get
	from          = ratetest.From
	method        = ratetest.Method
	with          = ratetest.With
	wantStatuses  = ratetest.WantStatuses
	perIP         = ratetest.PerIP
	noKey         = ratetest.NoKey
	requestWith   = ratetest.RequestWith
	checkKey      = ratetest.CheckKey
	checkPanic    = ratetest.CheckPanic
	checkText     = ratetest.CheckText
	found         = ratetest.Found
	outline       = ratetest.Outline
	finds         = ratetest.Finds
	newClock      = ratetest.NewClock
	quiet         = ratetest.Quiet
	logged        = ratetest.Logged
	hs256         = ratetest.HS256
	hs256Config   = ratetest.HS256Config
	valid         = ratetest.Valid
	hmacSecret    = ratetest.Secret
	printResponse = ratetest.Print
	requestFrom   = ratetest.RequestFrom
	ours          = ratetest.Ours
	preflight     = ratetest.Preflight
	onRoute       = ratetest.OnRoute
	waiting       = ratetest.Waiting
	hello         = ratetest.Hello
	inBubble      = ratetest.InBubble
	arrive        = ratetest.Arrive
	settled       = ratetest.Settled
	costs         = ratetest.Costs
	answering     = ratetest.Answering
	query         = ratetest.Query
	remaining     = ratetest.Remaining
	hourly        = ratetest.Hourly
	showsNames    = ratetest.ShowsNames
	namesOf       = ratetest.NamesOf
)

type (
	clock     = ratetest.Clock
	storeFunc = ratetest.StoreFunc
	failing   = ratetest.Failing
	recorder  = ratetest.Recorder
	queue     = ratetest.Queue
	bare      = ratetest.Bare
	generous  = ratetest.Generous
)

const (
	address    = ratetest.Address
	badRequest = ratetest.BadRequest
	proxy      = ratetest.Proxy
)

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
