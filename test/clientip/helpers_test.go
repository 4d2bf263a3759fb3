// Package clientip contains only tests, which compare ClientIP, and its explanations, with another implementation and with
// chi's middleware.
package clientip_test

import "github.com/go-tokenbucket/ratelimit/internal/test/ratetest"

const (
	proxy      = ratetest.Proxy
	stranger   = ratetest.Stranger
	badRequest = ratetest.BadRequest
)

var (
	checkKey    = ratetest.CheckKey
	found       = ratetest.Found
	ours        = ratetest.Ours
	requestFrom = ratetest.RequestFrom
	requestWith = ratetest.RequestWith
)
