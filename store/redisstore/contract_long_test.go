//go:build long

package redisstore_test

import (
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestContractOfTakeLuaOnCluster(t *testing.T) {
	storetest.Run(t, through(redisstore.OnlyTake, onClient(redistest.SharedCluster(t, 3).Client())))
}

func TestContractOfTakeLuaOnMiniredis(t *testing.T) {
	storetest.Run(t, through(redisstore.OnlyTake, forgetting(t, false)))
}
