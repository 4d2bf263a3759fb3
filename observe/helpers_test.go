package observe_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

var (
	newLimiter    = ratetest.NewLimiter
	okHandler     = ratetest.OK
	wantStatuses  = ratetest.WantStatuses
	perIP         = ratetest.PerIP
	checkPanic    = ratetest.CheckPanic
	printResponse = ratetest.Print
	onRoute       = ratetest.OnRoute
	hello         = ratetest.Hello
)

type (
	failing = ratetest.Failing
)
