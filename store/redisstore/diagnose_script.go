package redisstore

import (
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

const (
	// runs is how many decisions are timed. There are fewer if they are slow.
	runs    = 10
	maxRuns = time.Second

	// maxRoundTrip is a fifth of the 100 ms of a decision, because some round trips take several times as long as
	// most.
	maxRoundTrip = 20 * time.Millisecond

	// maxScript is about a hundred times the usual time of the script in Redis.
	maxScript = 5 * time.Millisecond
)

// script checks that the script runs, and measures its time.
func (i *inspection) script() {
	if !i.runs("eval", true) || len(i.denied) > 0 || !i.runs("evalsha", false) || len(i.denied) > 0 {
		return
	}
	var bare, whole []time.Duration
	for begin := time.Now(); len(whole) < runs && (len(whole) < 3 || time.Since(begin) < maxRuns); {
		before := time.Now()
		if err := i.ask("hmget", i.key, "tokens").Err(); i.fails("hmget", err) {
			return
		}
		bare = append(bare, time.Since(before))
		before = time.Now()
		if !i.runs("evalsha", false) {
			return
		}
		whole = append(whole, time.Since(before))
	}
	trip, decision := median(bare), median(whole)
	if trip > maxRoundTrip {
		i.findf("A command takes %v there and back, most of the time that a decision has if ratelimit.Config.Timeout is %v: run Redis nearer to this machine, or set Config.Timeout to several times as much.", round(trip), decisionTimeout)
	}
	if decision-trip > maxScript {
		i.findf("The script takes %v longer than another command, where it should be less than 1ms: give Redis a processor of its own, and look for what else keeps it busy with SLOWLOG GET.", round(decision-trip))
	}
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// runs reports whether the script runs, as EVAL or EVALSHA. It charges a bucket whose key expires after some seconds.
func (i *inspection) runs(command string, eval bool) bool {
	err := i.charge(eval)
	switch {
	case err == nil:
		return true
	case i.full && redis.HasErrorPrefix(err, "OOM"): // already noted
		return false
	case permissionOf(err).inScript:
		// A command inside of the script lacks a right. It is one that was not checked separately.
		if len(i.denied) == 0 {
			i.refuses("hset", err)
		}
		return false
	case redis.HasErrorPrefix(err, "NOSCRIPT") && !eval: // another client has just flushed the scripts
		return i.runs("eval", true)
	default:
		return !i.fails(command, err)
	}
}

// charge makes a decision in the same way as the engine.
func (i *inspection) charge(eval bool) error {
	l, err := bucket.NewLimit(1000, time.Second, 1000)
	if err != nil {
		return err
	}
	c := &call{items: []item{{name: i.key, term: term{limit: l, need: l.Need(1)}}}}
	decision := command{entries: []entry{{first: c, last: c, count: 1}}, eval: eval}
	decision.prepare(i.ctx, i.engine.clock, i.engine.choose(decision.entries))
	err = i.client.Process(i.ctx, decision.sent)
	if decision.script.alone() && errors.Is(err, redis.Nil) { // Redis has refused a command, and take.lua says why
		decision.prepare(i.ctx, i.engine.clock, take)
		err = i.client.Process(i.ctx, decision.sent)
	}
	return err
}
