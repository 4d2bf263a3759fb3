//go:build long

package redisstore_test

import "testing"

// With so many callers, nearly all calls are merged or refused without Redis.
func TestProcessesOfManyCallersShareALimitExactly(t *testing.T) {
	hammer(t, hammering{Rate: 250, Burst: 500, Callers: 64, Keys: 1})
}

func TestProcessesOfManyCallersShareManyLimitsExactly(t *testing.T) {
	hammer(t, hammering{Rate: 25, Burst: 50, Callers: 64, Keys: 20})
}
