package lua_test

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/lua"
)

func TestSHA1sAreThoseOfTheScripts(t *testing.T) {
	for name, script := range map[string]struct{ source, sha1 string }{
		"Take":       {lua.Take, lua.TakeSHA1},
		"TakeOne":    {lua.TakeOne, lua.TakeOneSHA1},
		"TakeQuota":  {lua.TakeQuota, lua.TakeQuotaSHA1},
		"TakeSlot":   {lua.TakeSlot, lua.TakeSlotSHA1},
		"TakeFew":    {lua.TakeFew, lua.TakeFewSHA1},
		"TakeAcross": {lua.TakeAcross, lua.TakeAcrossSHA1},
		"Peek":       {lua.Peek, lua.PeekSHA1},
		"Values":     {lua.Values, lua.ValuesSHA1},
	} {
		sum := sha1.Sum([]byte(script.source))
		if want := hex.EncodeToString(sum[:]); script.sha1 != want {
			t.Errorf("%s has changed: set %sSHA1 to %q", name, name, want)
		}
	}
}

// Sets of values are written and read in the Lua of Dragonfly and Garnet, too. On real servers, redisstore does it.
func TestValuesInOtherLua(t *testing.T) {
	s := startInterpreter(t, lua.Values)
	for _, step := range []struct{ at, arguments, want string }{
		{"10", "a 0 0", "10000000 0 "},
		{"10", "a 7 7", "10000000 1 "},
		{"10", "a 0 0 x", "10000000 1 10000000"},
		{"10", "a 0 0 y", "10000000 0 10000000 0 x"},
		{"10", "b 0 12000000 y", "10000000 1 10000001"},
		{"9", "c -1 0 z", "9000000 1 10000002"},
		{"11", "b 10000001 12500000 yy", "11000000 1 11000000"},
		{"11", "a 10000000 10000000", "11000000 0  c 10000002 10000002 0 z b 11000000 11000000 12500000 yy"},
		{"11", "b 11000000 11000000", "11000000 0 "},
		{"13", "b 11000000 11000000", "13000000 1  a 10000000 10000000 0 x c 10000002 10000002 0 z"},
		{"13", "b 11000000 0 y", "13000000 0 "},
		{"12", "b 0 0 y", "12000000 1 12000000"},
	} {
		s.ask("time", step.at, 0)
		request := []any{"run", 3, "s", "s#versions", "s#ends", ""}
		for _, argument := range strings.Fields(step.arguments) {
			request = append(request, argument)
		}
		if got := strings.Join(s.ask(request...), " "); got != step.want {
			t.Errorf("%s at %s: %q, want %q", step.arguments, step.at, got, step.want)
		}
	}
	for i := range 600 {
		s.ask("run", 3, "s", "s#versions", "s#ends", "", i, 0, 0, "text")
	}
	first := s.ask("run", 3, "s", "s#versions", "s#ends", "", "a", 10_000_000, 10_000_000)
	if len(first) != 3+3*500 || first[2] != "12000498" || first[len(first)-3] != "497" {
		t.Fatalf("%d parts: %.200q", len(first), first)
	}
	rest := s.ask("run", 3, "s", "s#versions", "s#ends", "", "497", first[2], first[2])
	if len(rest) != 3+3*102 || rest[1] != "0" || rest[2] != "" || rest[3] != "498" {
		t.Errorf("%d parts: %.200q", len(rest), rest)
	}
}
