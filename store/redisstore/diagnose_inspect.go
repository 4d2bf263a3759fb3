package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxClockDifference is the largest accepted difference between the clocks of Redis and this machine.
const maxClockDifference = time.Second

// An inspection is the examination of one server.
type inspection struct {
	ctx    context.Context
	engine *engine
	server

	findings []string
	denied   []string // commands that the user may not run
	keys     bool     // the user may not use the keys
	full     bool     // a finding says that the memory is full
}

// inspect returns the problems of a server.
func (e *engine) inspect(ctx context.Context, s server) []string {
	i := &inspection{ctx: ctx, engine: e, server: s}
	if i.reads() && i.info() && i.time() && i.writes() {
		i.script()
	}
	i.rights()
	return i.findings
}

// find notes a finding, and reports whether it is not empty.
func (i *inspection) find(finding string) bool {
	if finding != "" {
		i.findings = append(i.findings, finding)
	}
	return finding != ""
}

func (i *inspection) findf(format string, args ...any) { i.find(fmt.Sprintf(format, args...)) }

// An asked is a command that the client must not send again, so that the time of Diagnose is bounded.
type asked struct{ *redis.Cmd }

func (asked) NoRetry() bool { return true }

func (i *inspection) ask(args ...any) *redis.Cmd {
	cmd := redis.NewCmd(i.ctx, args...)
	if err := i.client.Process(i.ctx, asked{cmd}); err != nil {
		cmd.SetErr(err) // the client has not set it
	}
	return cmd
}

// fails reports whether err leaves nothing more to examine, and notes it.
func (i *inspection) fails(command string, err error) bool {
	switch {
	case err == nil, i.refuses(command, err):
		return false
	case i.engine.routes.cluster != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")):
		return true // the slot has just moved away
	default:
		return i.find(explain(i.ctx, err))
	}
}

// refuses reports whether err is of the ACL, and notes the missing right.
func (i *inspection) refuses(command string, err error) bool {
	p := permissionOf(err)
	if p.command {
		i.denied = append(i.denied, command)
	}
	i.keys = i.keys || p.key
	return p.lacks()
}

// reads checks that the server answers and permits reads of a bucket.
func (i *inspection) reads() bool {
	return !i.fails("hmget", i.ask("hmget", i.key, "tokens").Err())
}

// info checks the reply to INFO.
func (i *inspection) info() bool {
	text, err := i.ask("info").Text()
	if err != nil && !isRedis(err) {
		return !i.fails("info", err)
	}
	if err != nil {
		advice := "look at them by hand"
		if permissionOf(err).lacks() {
			advice = "check with another user, or permit it with ACL SETUSER <user> +info"
		}
		i.findf("The memory and the role of Redis could not be looked at, because it refuses INFO (%s): %s.", plainly(err), advice)
		return true
	}
	facts := parseInfo(text)
	i.full = i.find(facts.full())
	i.find(facts.evicts())
	return facts["role"] != "slave" || !i.find(isReplica)
}

// time checks the clock.
func (i *inspection) time() bool {
	before := time.Now()
	reply, err := i.ask("time").Int64Slice()
	took := time.Since(before)
	if i.engine.clock != nil && err != nil && isRedis(err) {
		return true // the script does not use it
	}
	if err != nil || len(reply) != 2 {
		return !i.fails("time", err)
	}
	ahead := time.Unix(reply[0], reply[1]*1000).Sub(before.Add(took / 2)).Round(time.Millisecond)
	if ahead.Abs() <= maxClockDifference+took/2 {
		return true
	}
	where := "ahead of"
	if ahead < 0 {
		where = "behind"
	}
	i.findf("The clock of Redis is %v %s this machine's, so one of them is wrong: limits by the clock of Redis do not suffer, but those by a Config.Clock do, and readers of X-RateLimit-Reset; have both set by NTP.", ahead.Abs(), where)
	return true
}

// writes checks that the user may read and set a TTL. Otherwise the script would leave a key without one.
func (i *inspection) writes() bool {
	return !i.fails("pttl", i.ask("pttl", i.key).Err()) &&
		!i.fails("pexpire", i.ask("pexpire", i.key, 1).Err()) && !slices.Contains(i.denied, "pttl") && !slices.Contains(i.denied, "pexpire") && !i.keys
}

// rights notes all missing rights.
func (i *inspection) rights() {
	if len(i.denied) > 0 {
		slices.Sort(i.denied)
		i.denied = slices.Compact(i.denied)
		clock := " +time"
		if i.engine.clock != nil {
			clock = ""
		}
		i.findf("The client's user may not run %s, which each decision needs: permit it with ACL SETUSER <user> +evalsha +eval%s +hmget +hset +pttl +pexpire.", strings.Join(i.denied, ", "), clock)
	}
	if i.keys {
		i.findf("The client's user may not read and write the keys of the Store: permit it with ACL SETUSER <user> ~%s:*.", i.engine.keys.prefix)
	}
}
