// Package lua holds the scripts that charge and read buckets in Redis. Package
// [github.com/go-tokenbucket/ratelimit/store/redisstore] runs them. Import this package only to load the scripts
// into a server in advance, or to run them from your own client:
//
//	redis.NewScript(lua.Take).Load(ctx, client)
//
// # Arguments and replies
//
// The head of each script describes its arguments and its reply. [Take] serves all calls. [TakeOne] serves a call
// of one charge and [TakeFew] a call of several. They are faster, and reply with nil to what is unusual: then call Take.
// [Block] blocks a bucket, and [Peek] reads one and writes nothing. All use the clock of the server. Take, Block and Peek
// use another if a time is passed.
package lua

import _ "embed" // the scripts

// Take is the source of take.lua, which describes buckets. TakeOne and TakeFew are the sources of take_one.lua and
// take_few.lua, which serve the most frequent calls.
var (
	//go:embed take.lua
	Take string
	//go:embed take_one.lua
	TakeOne string
	//go:embed take_few.lua
	TakeFew string
)

//go:embed take_across.lua
var across string

// TakeAcross is [Take] for keys of several hash slots of a Redis Cluster. The head of take_across.lua describes the
// differences.
var TakeAcross = across + Take

// The SHA-1 of the scripts in hex, for EVALSHA. They are constants, because SHA-1 at run time panics under
// GODEBUG=fips140=only.
const (
	TakeSHA1       = "dbe5c64e8804c17432582d027b6d19b9a3f50e55"
	TakeOneSHA1    = "771ff958e392b127a5d3861d2d5f0695b83e02da"
	TakeFewSHA1    = "21dbe526acd783d5072f45343675138a63377d1d"
	TakeAcrossSHA1 = "76b92074f35250715dd6a39a236bb675c157ad33"
	PeekSHA1       = "b6f5d0ec533eef00bd8b4aa0f1c354f3f4bc28d2"
	LoadLimitsSHA1 = "0339324f216a0c30873b78e0abc4367f0e6f3ee3"
)

// Peek is the source of peek.lua, and Block that of block.lua.
var (
	//go:embed peek.lua
	Peek string
	//go:embed block.lua
	Block string
)

// Reach is the source of reach.lua, which asks a master of a Cluster whether it serves TakeAcross.
//
//go:embed reach.lua
var Reach string

// LoadLimits is the source of load_limits.lua, which reads the limits that package limits keeps. SwapLimit is the source
// of swap_limit.lua, which changes one of them.
var (
	//go:embed load_limits.lua
	LoadLimits string
	//go:embed swap_limit.lua
	SwapLimit string
)
