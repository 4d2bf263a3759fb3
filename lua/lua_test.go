package lua_test

import (
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/lua"
)

func TestSHA1sAreThoseOfTheScripts(t *testing.T) {
	for name, script := range map[string]struct{ source, sha1 string }{
		"Take":       {lua.Take, lua.TakeSHA1},
		"TakeOne":    {lua.TakeOne, lua.TakeOneSHA1},
		"TakeQuota":  {lua.TakeQuota, lua.TakeQuotaSHA1},
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

// The hash of limits is read in the Lua of Dragonfly and Garnet, too. On real servers, redisstore reads it.
func TestLimitsAreReadInOtherLua(t *testing.T) {
	s := startInterpreter(t, lua.LoadLimits)
	if reply := s.ask("run", 1, "k"); len(reply) != 0 {
		t.Errorf("no hash: %q", reply)
	}
	full, long := strings.Repeat("n", 64), strings.Repeat("n", 65)
	s.hset("k", "api", "1 x", "full", strings.Repeat("v", 1024), "empty", "", "over", strings.Repeat("v", 1025), full, "2 y", long, "3 z")
	reply, got := s.ask("run", 1, "k"), make(map[string]string)
	for i := 0; i+1 < len(reply); i += 2 {
		got[reply[i]] = reply[i+1]
	}
	want := map[string]string{"api": "1 x", "full": strings.Repeat("v", 1024), "empty": "", "over": "1025 bytes", full: "2 y"}
	if !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for i := range 995 {
		s.hset("k", i, "v")
	}
	if reply := s.ask("run", 1, "k"); len(reply) != 1 || reply[0] != "1001" {
		t.Errorf("%.100q", reply)
	}
}
