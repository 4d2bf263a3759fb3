package lua_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/lua"
)

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
