// Package lua holds the scripts that charge and read buckets in Redis. Package
// [github.com/go-tokenbucket/ratelimit/store/redisstore] runs them. Import this package only to load the scripts
// into a server in advance, or to run them from your own client:
//
//	redis.NewScript(lua.Take).Load(ctx, client)
//
// # Arguments and replies
//
// The head of each script describes its arguments and its reply. [Take] serves all calls. [TakeOne] serves a call of one
// charge and [TakeFew] a call of several. They are faster, and reply with nil to what is unusual: then call Take. [Block]
// blocks a bucket, and [Peek] reads one and writes nothing. [Values] reads and writes sets of small values, which are no
// buckets. All use the clock of the server. Take, Block, Peek and Values use another if a time is passed.
package lua

import _ "embed" // the scripts

// The sources of the scripts. Each is the file of its name. Block, Peek and Values end with errors.lua.
// take.lua describes buckets, and values.lua sets of values. Reach asks a master of a Cluster whether it accepts TakeAcross.
var (
	//go:embed take.lua
	Take string
	//go:embed take_one.lua
	TakeOne string
	//go:embed take_few.lua
	TakeFew string
	//go:embed reach.lua
	Reach string

	Block  = block + errors
	Peek   = peek + errors
	Values = values + errors

	// TakeAcross is [Take] for keys of several hash slots of a Cluster. The head of take_across.lua has the differences.
	TakeAcross = takeAcross + Take
)

var (
	//go:embed block.lua
	block string
	//go:embed peek.lua
	peek string
	//go:embed values.lua
	values string
	//go:embed errors.lua
	errors string
	//go:embed take_across.lua
	takeAcross string
)

// The SHA-1 of scripts in hex, for EVALSHA. They are constants, because SHA-1 at run time panics under
// GODEBUG=fips140=only.
const (
	TakeSHA1       = "341d935893b9fc94ca0bad2e0084c42a0c84a607"
	TakeOneSHA1    = "692f788a13ee027032f1526424326cc781605302"
	TakeFewSHA1    = "cda047a057e2a001a686ec62f7d841dcf186d2da"
	TakeAcrossSHA1 = "0c4f1edf25f8e73363e95f21ceb6c11e97d867ad"
	PeekSHA1       = "e88d4fed9dc25323068972abce52c4d776b25d46"
	ValuesSHA1     = "abda86f7f3b2944d05bacf392fa951317673274f"
)
