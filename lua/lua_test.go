package lua_test

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/go-tokenbucket/ratelimit/lua"
)

func TestSHA1sAreThoseOfTheScripts(t *testing.T) {
	for name, script := range map[string]struct{ source, sha1 string }{
		"Take":       {lua.Take, lua.TakeSHA1},
		"TakeOne":    {lua.TakeOne, lua.TakeOneSHA1},
		"TakeFew":    {lua.TakeFew, lua.TakeFewSHA1},
		"TakeAcross": {lua.TakeAcross, lua.TakeAcrossSHA1},
		"Peek":       {lua.Peek, lua.PeekSHA1},
		"LoadLimits": {lua.LoadLimits, lua.LoadLimitsSHA1},
	} {
		sum := sha1.Sum([]byte(script.source))
		if want := hex.EncodeToString(sum[:]); script.sha1 != want {
			t.Errorf("%s has changed: set %sSHA1 to %q", name, name, want)
		}
	}
}
