package redisstore

import (
	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// A script is one that charges buckets. All decide alike, and differ in what they can be asked, and how fast.
type script uint8

const (
	take       script = iota // whatever there is
	takeOne                  // one charge
	takeFew                  // one call of a few charges
	takeAcross               // whatever there is, with undeclared keys of several hash slots
	scripts                  // how many there are
)

// most is how many charges takeFew is for. Beyond, those that ask the same are better listed once.
const most = 3

// The first two arguments of the Redis commands that run the scripts. They are made once, because to make an any of a
// string allocates.
var (
	sources = [scripts][2]any{
		take: {"eval", lua.Take}, takeOne: {"eval", lua.TakeOne}, takeFew: {"eval", lua.TakeFew}, takeAcross: {"eval", lua.TakeAcross},
	}
	sha1s = [scripts][2]any{
		take: {"evalsha", lua.TakeSHA1}, takeOne: {"evalsha", lua.TakeOneSHA1}, takeFew: {"evalsha", lua.TakeFewSHA1},
		takeAcross: {"evalsha", lua.TakeAcrossSHA1},
	}
)

// command returns the beginning of the command that runs s, by the script itself or by its SHA-1.
func (s script) command(eval bool) *[2]any {
	if eval {
		return &sources[s]
	}
	return &sha1s[s]
}

// scriptOf returns the fastest script that answers entries, with declared keys.
func scriptOf(entries []entry) script {
	if len(entries) != 1 || entries[0].count != 1 || len(entries[0].first.items) > most {
		return take
	}
	items := entries[0].first.items
	for i := range items {
		if !items[i].term.plain() {
			return take
		}
	}
	if len(items) == 1 {
		return takeOne
	}
	return takeFew
}

// plain reports whether t is for the scripts of one call: their answers tell apart no shadow that could not be read,
// and takeOne's has no room for a bucket of the largest capacity.
func (t *term) plain() bool {
	return !t.shadow && t.past == nil && t.need != bucket.Reset && t.capacity < bucket.MaxCredits
}
