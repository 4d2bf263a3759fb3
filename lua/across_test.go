package lua_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// unflagged is take_across.lua without its first line, which only Redis since 7.0 and Valkey understand. The tests of
// redisstore run it with that line on a cluster.
func unflagged(t *testing.T) string {
	t.Helper()
	flags, script, found := strings.Cut(lua.TakeAcross, "\n")
	if !found || flags != "#!lua flags=allow-cross-slot-keys" {
		t.Fatalf("the script begins with %q", flags)
	}
	return script
}

// across is a server whose first script is a form of take_across.lua.
type across struct {
	server
	blocking bool // block.lua is in use, which declares its key
}

func acrossOf(s server) *across { return &across{server: s} }

func (a *across) use(script int) {
	a.blocking = script == useBlock
	a.server.use(script)
}

func (a *across) run(keys []string, args []any) ([]int64, error) {
	all := make([]any, len(keys), len(keys)+len(args)+1)
	for i, key := range keys {
		all[i] = key
	}
	if a.blocking {
		return a.server.run(keys, args)
	}
	return a.server.run(nil, append(slices.Concat(all, args), len(keys)))
}

func movableAcross(t *testing.T) []string {
	scripts := movableAll(t)
	scripts[useTake] = movable(t, unflagged(t))
	return scripts
}

func TestABatchAcrossSlotsIsAnsweredAsItsCallsOneByOne(t *testing.T) {
	testBatches(t, acrossOf(startServer(t, movableAcross(t)...)), uint64(testsize.Of(3, 20)))
}

func TestABatchAcrossSlotsIsAnsweredAlikeInLua54(t *testing.T) {
	testBatches(t, acrossOf(startInterpreter(t, movableAcross(t)...)), uint64(testsize.Of(2, 4)))
}

// A call is answered with -1 and carried out in no part if a key is broken, whether that is of a shadow or of the only
// call.
func TestKeysThatHoldNoBucketDisturbNoOtherCallAcrossSlots(t *testing.T) {
	s := startServer(t, movable(t, unflagged(t))) // so that no bucket expires meanwhile
	testSpoilt(t, spoiltServer{
		server: acrossOf(s),
		client: s.client,
		vetoed: isSpoilt,
		ask:    func(now any, calls []call) ([]int64, error) { return askCalls(acrossOf(s), now, calls) },
	})
}
