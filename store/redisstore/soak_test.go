//go:build long

package redisstore_test

import (
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestSoak(t *testing.T) {
	storetest.RunSoak(t, through(redisstore.EitherScript, onClient(redistest.Start(t).Client())))
}
