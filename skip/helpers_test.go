package skip_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

var (
	newLimiter    = ratetest.NewLimiter
	okHandler     = ratetest.OK
	method        = ratetest.Method
	perIP         = ratetest.PerIP
	requestWith   = ratetest.RequestWith
	checkKey      = ratetest.CheckKey
	checkPanic    = ratetest.CheckPanic
	printResponse = ratetest.Print
	requestFrom   = ratetest.RequestFrom
	ours          = ratetest.Ours
	proxy         = ratetest.Proxy
	stranger      = ratetest.Stranger
	preflight     = ratetest.Preflight
	served        = ratetest.Served
	hello         = ratetest.Hello
)

type (
	roundTripper = ratetest.RoundTripper
)
