package lua_test

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/go-tokenbucket/ratelimit/lua"
)

func TestTakeSHA1IsThatOfTake(t *testing.T) {
	sum := sha1.Sum([]byte(lua.Take))
	if want := hex.EncodeToString(sum[:]); lua.TakeSHA1 != want {
		t.Fatalf("take.lua has changed: set TakeSHA1 to %q", want)
	}
}
