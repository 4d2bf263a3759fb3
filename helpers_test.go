package ratelimit_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

var (
	newLimiter   = ratetest.NewLimiter
	okHandler    = ratetest.OK
	get          = ratetest.Get
	from         = ratetest.From
	method       = ratetest.Method
	with         = ratetest.With
	wantStatuses = ratetest.WantStatuses
	perIP        = ratetest.PerIP
	noKey        = ratetest.NoKey
	requestWith  = ratetest.RequestWith
	checkKey     = ratetest.CheckKey
	checkPanic   = ratetest.CheckPanic
	checkText    = ratetest.CheckText
	found        = ratetest.Found
	outline      = ratetest.Outline
	finds        = ratetest.Finds
	newClock     = ratetest.NewClock
	quiet        = ratetest.Quiet
	logged       = ratetest.Logged
	hs256        = ratetest.HS256
	hs256Config  = ratetest.HS256Config
	valid        = ratetest.Valid
	hmacSecret   = ratetest.Secret
	request      = ratetest.Print
	requestFrom  = ratetest.RequestFrom
	ours         = ratetest.Ours
	preflight    = ratetest.Preflight
	onRoute      = ratetest.OnRoute
	waiting      = ratetest.Waiting
	hello        = ratetest.Hello
)

type (
	clock     = ratetest.Clock
	storeFunc = ratetest.StoreFunc
	failing   = ratetest.Failing
)

const badRequest = ratetest.BadRequest

func must[T any](v T, err error) T { return ratetest.Must(v, err) }
