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

// A CrossSlot sets whether a Store sends keys of several hash slots in one script call. It matters on Redis Cluster only.
// There, one such call answers a whole batch for a master, in a half to a third of the time that a call for each slot
// takes Redis. The script has the flag allow-cross-slot-keys, which Redis knows since 7.0, and Valkey. Its keys are
// not declared. A key whose slot has moved is sent again in a call that declares it.
type CrossSlot int

const (
	// CrossSlotAuto sends such calls to masters that allow them. Each master is asked once, by a script that only reads,
	// in a pipeline with other calls. If one does not allow them, that is logged once. It is the default. The only
	// master of a Cluster cannot be asked whether it refuses keys of other masters, as Redis and Valkey do.
	CrossSlotAuto CrossSlot = iota

	// CrossSlotAlways sends such calls without asking. A master that does not know the flag is sent a call for each slot
	// from then on. Use it only for servers that refuse keys of other masters also in scripts that do not declare them,
	// as Redis and Valkey do. Elsewhere, a key could have a bucket on two servers while its slot moves.
	CrossSlotAlways

	// CrossSlotNever sends a call for each slot, and declares all keys.
	CrossSlotNever
)

// A crossing holds whether the master of a lane allows keys of several hash slots in one script. The zero value means
// no.
type crossing struct {
	state        atomic.Int32
	nextQuestion atomic.Int64 // the earliest time of the next question, in Unix nanoseconds; 0: no call has needed the answer yet
	unclear      atomic.Int32 // how many answers were neither yes nor no
}

const (
	crossingNo int32 = iota
	crossingUnknown
	crossingYes
)

const (
	// reachPause is the shortest time between two questions.
	reachPause = time.Second

	// maxUnclear is how many unclear answers count as a no. Answers are unclear while slots move.
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

// crosses reports whether keys of several slots can be sent to l in one script. If that is not known yet, the next
// batch includes a question.
func (l *lane) crosses() bool {
	switch l.crossing.state.Load() {
	case crossingYes:
		return true
	case crossingUnknown:
		l.crossing.nextQuestion.CompareAndSwap(0, 1)
	}
	return false
}

// A reach asks a master which of these keys a script may read without declaring them.
type reach struct {
	keys []string

	// foreign is set if the last of keys belongs to another master. A server that can read it does not check slots in
	// scripts. It would charge a second bucket for a key whose slot has moved away.
	foreign bool
}

const (
	// A master is asked for maxOwn keys of its slots. With several, some are still there while others move.
	maxOwn = 16

	// reachTries is how many random keys are tried to find these.
	reachTries = 1 << 10
)

// reach returns a command that asks the master of l. It returns nil if the answer is known, if no call has needed it
// yet, or if it is too early to ask again. The keys are random and belong to no bucket.
func (l *lane) reach() *command {
	x := &l.crossing
	next := x.nextQuestion.Load()
	if next == 0 || x.state.Load() != crossingUnknown {
		return nil
	}
	if now := time.Now().UnixNano(); next > now || !x.nextQuestion.CompareAndSwap(next, now+int64(reachPause)) {
		return nil
	}
	var own []string
	foreign, random := "", rand.Uint64()
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
	if len(own) < 2 { // the master has almost no slots
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

// firstKey is the position of the first key among the arguments of a script call, declared or not.
const firstKey = 3

// acrossSlots returns a command whose script has undeclared keys. The client finds the master by the first of them.
func acrossSlots(cmd *redis.IntSliceCmd) once {
	cmd.SetFirstKeyPos(firstKey)
	return once{cmd}
}

// reached handles the answer to a reach.
func (l *lane) reached(c *command) {
	if c.err != nil {
		if isRedis(c.err) && !certain(c.err) { // other errors say nothing about scripts
			l.refuseCrossing(c.err.Error())
		}
		return
	}
	switch reply := c.sent.(once).Val(); {
	case len(reply) == len(c.reach.keys) && c.reach.allowed(reply):
		l.crossing.state.CompareAndSwap(crossingUnknown, crossingYes)
	case l.crossing.unclear.Add(1) == maxUnclear:
		l.refuseCrossing(fmt.Sprintf("of keys of its slots, and one of another master, a script could read %v", reply))
	}
}

// allowed reports whether reply is from a master that accepts keys of several of its slots, and no keys of other masters.
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

// refuseCrossing sends each slot of l separately from now on.
func (l *lane) refuseCrossing(reason string) {
	if l.crossing.state.Swap(crossingNo) == crossingNo {
		return
	}
	// In a Once, the calls of other masters would wait for a slow logger.
	if l.engine.crossingRefused.CompareAndSwap(false, true) {
		l.engine.logger.Warn("redisstore: a master of the Redis Cluster does not allow keys of several hash slots in one script: from now on each slot is sent a separate call, which takes Redis longer; set Config.CrossSlot to CrossSlotNever to do so from the start", "error", reason)
	}
}

// notKnown reports whether err means that the server does not support scripts across slots. The server has then not
// run the script.
func notKnown(err error) bool {
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		return true
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "compiling script") || strings.Contains(text, "shebang")
}

// notWhole reports whether err means that the server runs no script across slots at the moment, because the script
// might write. Calls of a single slot can still be answered if they only read, or are redirected.
func (r *routes) notWhole(err error) bool {
	for _, prefix := range [...]string{"OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return r.moving(err) || isRedis(err) && strings.Contains(err.Error(), "while the cluster is down") // at the first write
}
