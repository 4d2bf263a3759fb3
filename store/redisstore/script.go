package redisstore

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// A script charges buckets. All scripts make the same decisions. They differ in the calls that they accept, and in
// speed.
type script uint8

const (
	take       script = iota // any calls
	takeOne                  // one charge
	takeQuota                // one charge of a quota, no refund and not owed
	takeSlot                 // one claim of slots
	takeFew                  // one call of a few charges
	takeAcross               // any calls, with undeclared keys of several hash slots
	scripts                  // how many there are
)

// maxTakeFew is the maximum number of charges for takeFew. A longer list is smaller if identical charges are listed once.
const maxTakeFew = 3

// The first two arguments of the Redis commands that run the scripts. They are made once, because the conversion of a
// string to any allocates.
var (
	sources = [scripts][2]any{
		take: {"eval", lua.Take}, takeOne: {"eval", lua.TakeOne}, takeQuota: {"eval", lua.TakeQuota}, takeSlot: {"eval", lua.TakeSlot}, takeFew: {"eval", lua.TakeFew}, takeAcross: {"eval", lua.TakeAcross},
	}
	sha1s = [scripts][2]any{
		take: {"evalsha", lua.TakeSHA1}, takeOne: {"evalsha", lua.TakeOneSHA1}, takeQuota: {"evalsha", lua.TakeQuotaSHA1}, takeSlot: {"evalsha", lua.TakeSlotSHA1}, takeFew: {"evalsha", lua.TakeFewSHA1},
		takeAcross: {"evalsha", lua.TakeAcrossSHA1},
	}
)

// command returns the first arguments of the command that runs s: by its text if eval is set, else by its SHA-1.
func (s script) command(eval bool) *[2]any {
	if eval {
		return &sources[s]
	}
	return &sha1s[s]
}

// scriptOf returns the fastest script for entries, with declared keys.
func scriptOf(entries []entry) script {
	if len(entries) != 1 || entries[0].count != 1 || len(entries[0].first.items) > maxTakeFew {
		return take
	}
	items, quotas := entries[0].first.items, 0
	if t := &items[0].term; len(items) == 1 && t.claim != nil && !t.shadow {
		return takeSlot
	}
	for i := range items {
		if !items[i].term.plain() {
			return take
		}
		if items[i].term.period != nil {
			quotas++
		}
	}
	switch {
	case quotas == 0 && len(items) > 1:
		return takeFew
	case quotas == 0:
		return takeOne
	case len(items) == 1 && items[0].term.need >= 0 && items[0].term.debt == 0:
		return takeQuota
	}
	return take
}

// alone reports whether s is for a single call.
func (s script) alone() bool { return s == takeOne || s == takeQuota || s == takeSlot || s == takeFew }

// plain reports whether the scripts of one call support t. Their answers do not distinguish a shadow that could not
// be read, and have no room for a block. Answers of takeOne and takeQuota have no room for a bucket of the largest capacity.
func (t *term) plain() bool {
	return !t.shadow && !t.limit.IsConcurrency() && t.lock == 0 && t.debt != bucket.NoDebt && t.need != bucket.Reset && t.limit.Capacity < bucket.MaxCredits
}
