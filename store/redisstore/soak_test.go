//go:build long

package redisstore_test

import (
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/redistest"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestSoak(t *testing.T) {
	storetest.RunSoak(t, onClient(redistest.Start(t).Client()))
}
