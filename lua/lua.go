// Package lua holds the scripts that charge and read buckets in Redis. Package
// [github.com/go-tokenbucket/ratelimit/store/redisstore] runs them. Import this package only to load the scripts
// into a server in advance, or to run them from your own client:
//
//	redis.NewScript(lua.Take).Load(ctx, client)
//
// # Arguments and replies
//
// The head of each script describes its arguments and its reply. [Take] serves all calls. [TakeOne] serves a call of one
// charge, [TakeQuota] one whose limit is a quota, and [TakeFew] a call of several charges without quotas. They are faster,
// and reply with nil to what is unusual: then call Take. [Block] blocks a bucket, and [Peek] reads one and writes nothing.
// All use the clock of the server. Take, Block and Peek use another if a time is passed.
package lua

import _ "embed" // the scripts

// The sources of the scripts. Each is the file of its name. Block, Peek, LoadLimits and SwapLimit end with errors.lua.
// take.lua describes buckets. swap_limit.lua describes the hash of changed limits, which package limits keeps. Reach asks a
// master of a Cluster whether it accepts TakeAcross.
var (
	//go:embed take.lua
	Take string
	//go:embed take_one.lua
	TakeOne string
	//go:embed take_quota.lua
	TakeQuota string
	//go:embed take_few.lua
	TakeFew string
	//go:embed reach.lua
	Reach string

	Block      = block + errors
	Peek       = peek + errors
	LoadLimits = loadLimits + errors
	SwapLimit  = swapLimit + errors

	// TakeAcross is [Take] for keys of several hash slots of a Cluster. The head of take_across.lua has the differences.
	TakeAcross = takeAcross + Take
)

var (
	//go:embed block.lua
	block string
	//go:embed peek.lua
	peek string
	//go:embed load_limits.lua
	loadLimits string
	//go:embed swap_limit.lua
	swapLimit string
	//go:embed errors.lua
	errors string
	//go:embed take_across.lua
	takeAcross string
)

// The SHA-1 of scripts in hex, for EVALSHA. They are constants, because SHA-1 at run time panics under
// GODEBUG=fips140=only.
const (
	TakeSHA1       = "ad68bf79bc342ba0b691f413010fd0e0dd58e493"
	TakeOneSHA1    = "043ac794162110c03b16e5430964a786abdb85c8"
	TakeQuotaSHA1  = "ebac0f14f2f8161cde69e9979b3a681d8740ea93"
	TakeFewSHA1    = "3efae39c0e40849a88f327423123aa9c5aa7cc38"
	TakeAcrossSHA1 = "2b1b6d0e7852f60f72c6442cf78cd6835ef77bf5"
	PeekSHA1       = "695e987bf4e9d96ad75966d669adb8e0fd93f61c"
	LoadLimitsSHA1 = "0be8271497a8ae87f3f65b2f695e12f094505e47"
)
