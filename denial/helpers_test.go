package denial_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

var (
	newLimiter    = ratetest.NewLimiter
	okHandler     = ratetest.OK
	get           = ratetest.Get
	method        = ratetest.Method
	with          = ratetest.With
	wantStatuses  = ratetest.WantStatuses
	perIP         = ratetest.PerIP
	noKey         = ratetest.NoKey
	finds         = ratetest.Finds
	denying       = ratetest.Denying
	printResponse = ratetest.Print
	waiting       = ratetest.Waiting
	hello         = ratetest.Hello
)

type (
	storeFunc = ratetest.StoreFunc
	failing   = ratetest.Failing
)
