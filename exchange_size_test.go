package ratelimit

import (
	"testing"
	"unsafe"
)

// With 8 bytes more, and the 8 that the runtime puts before it, an exchange would take 640 bytes instead of 576.
func TestTheExchangeOfARequestFitsInto576Bytes(t *testing.T) {
	if n := unsafe.Sizeof(requestExchange{}) + 8; n > 576 {
		t.Errorf("%d bytes", n)
	}
}
