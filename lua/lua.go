// Package lua holds the scripts that charge and read buckets in Redis. Package
// [github.com/go-tokenbucket/ratelimit/store/redisstore] runs them. Import this package only to load the scripts
// into a server in advance, or to run them from your own client:
//
//	redis.NewScript(lua.Take).Load(ctx, client)
//
// # Arguments and replies
//
// The head of each script describes its arguments and its reply. [Take] serves all calls. [TakeOne] serves a call
// of one charge and [TakeFew] a call of several, both faster. [Peek] reads a bucket and writes nothing. All use the
// clock of the server, unless a time is passed.
package lua

import (
	"embed"
	"strings"
)

//go:embed *.lua parts/*.lua
var files embed.FS

// Take is the source of take.lua. TakeOne and TakeFew are the sources of take_one.lua and take_few.lua, which serve
// the most frequent calls.
var (
	Take    = script("take.lua")
	TakeOne = script("take_one.lua")
	TakeFew = script("take_few.lua")
)

// TakeAcross is [Take] for keys of several hash slots of a Redis Cluster. The head of take_across.lua describes the
// differences.
var TakeAcross = script("take_across.lua") + Take

// The SHA-1 of each script in hex, for EVALSHA. They are constants, because SHA-1 at run time panics under
// GODEBUG=fips140=only.
const (
	TakeSHA1    = "fce59c3b84ba3eb5b01343011b64b9999e91e71f"
	TakeOneSHA1 = "872f4ce0ca887e5131626d08f2e7cd5dc3c9a746"
	TakeFewSHA1 = "c2df9376c37e94651e21c38c660299cff91a4a82"

	TakeAcrossSHA1 = "c4e7a0f3caa8dd3ebce469674d45c7bd263eae18"
)

// Reach is the source of reach.lua, whose head describes its arguments and its reply.
var Reach = script("reach.lua")

// LoadLimits is the source of load_limits.lua, which reads the limits that package limits keeps. SwapLimit is the source
// of swap_limit.lua, which changes one of them.
var (
	LoadLimits = script("load_limits.lua")
	SwapLimit  = script("swap_limit.lua")
)

// LoadLimitsSHA1 is the SHA-1 of [LoadLimits] in hex.
const LoadLimitsSHA1 = "0339324f216a0c30873b78e0abc4367f0e6f3ee3"

// Peek is the source of peek.lua.
var Peek = script("peek.lua")

// PeekSHA1 is the SHA-1 of [Peek] in hex.
const PeekSHA1 = "cb5026a4ef6fcae30ef56d45159c1f834bf96959"

// part is the prefix of a line that is replaced by the named file of parts. Parts contain the arithmetic that scripts
// share. They are not Lua functions, because these would be created in each run of a script.
const part = "--: "

// IsNoBucket reports whether text is an error of TakeOne or TakeFew for a key that holds no bucket. Catching errors
// in Lua would take 4 % of their time. The only other error that they raise is that of IsBlocked. The first text is
// from the check of a number. The others are for a missing field, in Lua and in the Lua of miniredis.
func IsNoBucket(text string) bool {
	return strings.Contains(text, "the key holds no bucket") ||
		strings.Contains(text, "attempt to perform arithmetic") ||
		strings.Contains(text, "cannot perform add operation")
}

// IsBlocked reports whether text is an error of TakeOne or TakeFew for a bucket that is blocked. The script has written
// nothing. Take answers such calls.
func IsBlocked(text string) bool { return strings.Contains(text, "the bucket is blocked") }

// script returns the source of a script, joined from its file and its parts.
func script(name string) string {
	source, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	var joined strings.Builder
	for line := range strings.Lines(string(source)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), part); ok {
			line = script("parts/" + name + ".lua")
		}
		joined.WriteString(line)
	}
	return joined.String()
}
