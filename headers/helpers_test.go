package headers_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

var (
	newLimiter = ratetest.NewLimiter
	okHandler  = ratetest.OK
	get        = ratetest.Get
	with       = ratetest.With
	perIP      = ratetest.PerIP
	checkPanic = ratetest.CheckPanic
	newClock   = ratetest.NewClock
	lines      = ratetest.Lines
	hello      = ratetest.Hello
)

type (
	failing      = ratetest.Failing
	roundTripper = ratetest.RoundTripper
)
