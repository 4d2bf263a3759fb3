package jwtkey_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

var (
	requestWith   = ratetest.RequestWith
	checkKey      = ratetest.CheckKey
	checkPanic    = ratetest.CheckPanic
	checkText     = ratetest.CheckText
	found         = ratetest.Found
	hs256         = ratetest.HS256
	hs256Config   = ratetest.HS256Config
	sign          = ratetest.Sign
	valid         = ratetest.Valid
	hmacSecret    = ratetest.Secret
	at            = ratetest.At
	printResponse = ratetest.Print
	hello         = ratetest.Hello
	segment       = ratetest.Segment
)

const badRequest = ratetest.BadRequest
