package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/lua"
)

// A CrossSlot says whether a Store sends keys of several hash slots in one script call. It matters on a Redis Cluster
// only, where a master then answers a whole batch by one call, which takes it about a third of the time of a call for
// each slot. Redis allows it since 7.0, by the script flag allow-cross-slot-keys, and so does Valkey. In such a call
// the keys are not declared.
type CrossSlot int

const (
	// CrossSlotAuto finds out which masters allow it: before the first such call to a master, a script that only reads
	// is sent along with other calls. It is the default.
	CrossSlotAuto CrossSlot = iota

	// CrossSlotAlways begins with such calls at once. A master that turns out not to know the flag is sent calls of one
	// slot each. Do not set it for a server that runs scripts with undeclared keys of other masters: there, a slot that
	// moves would have two buckets for a key.
	CrossSlotAlways

	// CrossSlotNever declares all keys, and sends each slot a call. Set it for servers that bill, or restrict by
	// declared keys.
	CrossSlotNever
)

// A crossing is whether the master of a lane takes keys of several hash slots in one script. The zero value is of a
// server that was not asked and will not be.
type crossing struct {
	state   atomic.Int32
	again   atomic.Int64 // not to ask before that time, in Unix nanoseconds; 0: nobody has wanted to know
	unclear atomic.Int32 // how often the answer was neither yes nor no
}

const (
	crossingNo int32 = iota
	crossingUnknown
	crossingYes
)

const (
	// reachPause is how long it takes at least from one question to the next.
	reachPause = time.Second

	// maxUnclear is how many answers that are neither yes nor no make a no. Slots that move may be the cause.
	maxUnclear = 10
)

func (x *crossing) init(c CrossSlot) {
	switch c {
	case CrossSlotAuto:
		x.state.Store(crossingUnknown)
	case CrossSlotAlways:
		x.state.Store(crossingYes)
	}
}

// crosses reports whether keys of several slots can be sent to l in one script. If that is not known, a question
// leaves with the next batch.
func (l *lane) crosses() bool {
	switch l.crossing.state.Load() {
	case crossingYes:
		return true
	case crossingUnknown:
		l.crossing.again.CompareAndSwap(0, 1)
	}
	return false
}

// A reach is a question to a master: which keys a script may read that does not declare them.
type reach struct {
	keys    []string
	foreign bool // the last of keys is of another master, if there is one; who reads it would not notice a slot that moves
}

const (
	// maxOwn is how many keys of its slots a master is asked for, so that some are there while others move.
	maxOwn = 16

	// reachTries is how many keys are made up for that.
	reachTries = 1 << 10
)

// reach returns a command that asks the master of l, or nil if the answer is known, if nobody has wanted to know, or if
// it is too early to ask again.
func (l *lane) reach() *command {
	x := &l.crossing
	again, now := x.again.Load(), time.Now().UnixNano()
	if again == 0 || again > now || x.state.Load() != crossingUnknown || !x.again.CompareAndSwap(again, now+int64(reachPause)) {
		return nil
	}
	var own []string
	foreign, random := "", rand.Uint64() // so that the keys are of no bucket
	for i := range reachTries {
		key := fmt.Sprintf("%s:{reach-%d-%d}:", l.engine.keys.prefix, random, i)
		other, err := l.engine.routes.lane(key)
		switch {
		case err != nil:
			return nil
		case other != l:
			foreign = key
		case len(own) < maxOwn:
			own = append(own, key)
		}
		if foreign != "" && len(own) == maxOwn {
			break
		}
	}
	if len(own) < 2 { // it has hardly any slots
		return nil
	}
	asked := reach{keys: own}
	if foreign != "" {
		asked = reach{append(own, foreign), true}
	}
	return &command{reach: &asked}
}

// prepareReach is prepare for a reach.
func (c *command) prepareReach(ctx context.Context) {
	args := make([]any, 0, firstKey+len(c.reach.keys))
	args = append(args, "eval", lua.Reach, 0)
	for _, key := range c.reach.keys {
		args = append(args, key)
	}
	c.sent = acrossSlots(redis.NewIntSliceCmd(ctx, args...))
}

// firstKey is where the first key stands among the arguments of a script call, declared or not.
const firstKey = 3

// acrossSlots returns a command whose script has undeclared keys: the client finds the master by the first.
func acrossSlots(cmd *redis.IntSliceCmd) once {
	cmd.SetFirstKeyPos(firstKey)
	return once{cmd}
}

// reached takes note of the answer to a reach.
func (l *lane) reached(c *command) {
	switch reply := c.sent.(once).Val(); {
	case c.err != nil && (!isRedis(c.err) || certain(c.err)):
		// It says nothing of scripts.
	case c.err != nil:
		l.refuseCrossing(c.err.Error())
	case len(reply) == len(c.reach.keys) && c.reach.allowed(reply):
		l.crossing.state.CompareAndSwap(crossingUnknown, crossingYes)
	case l.crossing.unclear.Add(1) == maxUnclear:
		l.refuseCrossing(fmt.Sprintf("of keys of its slots, and of one of another master, it lets a script read %v", reply))
	}
}

// allowed reports whether reply is of a master that takes keys of several of its slots, and no others.
func (q *reach) allowed(reply []int64) bool {
	own := reply
	if q.foreign {
		last := len(reply) - 1
		if reply[last] != 0 {
			return false
		}
		own = reply[:last]
	}
	read := 0
	for _, yes := range own {
		read += int(yes)
	}
	return read >= 2
}

// refuseCrossing has calls to l sent slot by slot from now on.
func (l *lane) refuseCrossing(reason string) {
	if l.crossing.state.Swap(crossingNo) == crossingNo {
		return
	}
	l.engine.crossingRefused.Do(func() {
		l.engine.logger.Warn("redisstore: this Redis Cluster does not take keys of several hash slots in one script: each slot is sent a call from now on, which costs Redis more; Config.CrossSlot can say so from the start", "error", reason)
	})
}

// notKnown reports whether err, of a script across slots, says that the server does not take such scripts: then it has
// not run it.
func notKnown(err error) bool {
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		return true
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "compiling script") || strings.Contains(text, "shebang")
}

// notWhole reports whether err, of a script across slots, says that the server runs no such script at the moment, as it
// might write. Calls of single slots can still be answered if they write nothing, or follow their slot.
func (r *routes) notWhole(err error) bool {
	for _, prefix := range [...]string{"OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return r.moving(err) || isRedis(err) && strings.Contains(err.Error(), "while the cluster is down") // of the first write
}
