//go:build long

package memstore_test

import (
	"testing"

	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestSoak(t *testing.T) { storetest.RunSoak(t, open) }
