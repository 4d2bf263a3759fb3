// Package lua holds the scripts that charge and read buckets in Redis. Package
// [github.com/go-tokenbucket/ratelimit/store/redisstore] runs them. Import this package only to load the scripts
// into a server in advance, or to run them from your own client:
//
//	redis.NewScript(lua.Take).Load(ctx, client)
//
// # Arguments and replies
//
// The head of each script describes its arguments and its reply. [Take] serves all calls. [TakeOne] serves a call of one
// charge, [TakeQuota] one whose limit is a quota, [TakeSlot] one of slots, and [TakeFew] a call of several charges of rates.
// They are faster, and reply with nil to what is unusual: then call Take. [Block] blocks a bucket, and [Peek] reads one and writes nothing.
// [Values] reads and writes sets of small values, which are no buckets. All use the clock of the server. Take, Block, Peek
// and Values use another if a time is passed.
package lua

import _ "embed" // the scripts

// The sources of the scripts. Each is the file of its name. Block, Peek and Values end with errors.lua.
// take.lua describes buckets, and values.lua sets of values. Reach asks a master of a Cluster whether it accepts TakeAcross.
var (
	//go:embed take.lua
	Take string
	//go:embed take_one.lua
	TakeOne string
	//go:embed take_quota.lua
	TakeQuota string
	//go:embed take_slot.lua
	TakeSlot string
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
	TakeSHA1       = "1c278dcf4442b346c9bada0f97924c2998c311e5"
	TakeOneSHA1    = "043ac794162110c03b16e5430964a786abdb85c8"
	TakeQuotaSHA1  = "acd2b6eeb42cb616dcef1437f1a32882c2042d52"
	TakeSlotSHA1   = "afa3d58a5499c44a191c6d3b95d8e860d59421da"
	TakeFewSHA1    = "3efae39c0e40849a88f327423123aa9c5aa7cc38"
	TakeAcrossSHA1 = "2a53fcb22087659430d6ed2eeb733ee7d09e57c0"
	PeekSHA1       = "38cd035018d82ff592f0bafb0ef800ab676d47f4"
	ValuesSHA1     = "0d5c4ab97b9ae0574df3608976f979b428366ebb"
)
