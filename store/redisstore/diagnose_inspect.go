package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxClockDifference is how far apart the clocks of two machines may be.
const maxClockDifference = time.Second

// An inspection is of one server.
type inspection struct {
	ctx    context.Context
	engine *engine
	server

	findings []string
	denied   []string // commands that the user may not run
	keys     bool     // it may not use the keys
	full     bool     // the memory was found to be
}

// inspect returns what is wrong with a server.
func (e *engine) inspect(ctx context.Context, s server) []string {
	i := &inspection{ctx: ctx, engine: e, server: s}
	if i.reads() && i.info() && i.time() && i.writes() {
		i.script()
	}
	i.rights()
	return i.findings
}

// find notes a finding, and reports whether it is one.
func (i *inspection) find(finding string) bool {
	if finding != "" {
		i.findings = append(i.findings, finding)
	}
	return finding != ""
}

func (i *inspection) findf(format string, args ...any) { i.find(fmt.Sprintf(format, args...)) }

// An asked is a command that the client must not send again: the check is bounded.
type asked struct{ *redis.Cmd }

func (asked) NoRetry() bool { return true }

func (i *inspection) ask(args ...any) *redis.Cmd {
	cmd := redis.NewCmd(i.ctx, args...)
	if err := i.client.Process(i.ctx, asked{cmd}); err != nil {
		cmd.SetErr(err) // of a client that does not
	}
	return cmd
}

// fails reports whether err is one after which there is nothing to look at, and then has noted it.
func (i *inspection) fails(command string, err error) bool {
	switch {
	case err == nil, i.refuses(command, err):
		return false
	case i.engine.routes.cluster != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")):
		return true // the slot has just left
	default:
		return i.find(explain(i.ctx, err))
	}
}

// refuses reports whether err is of the ACL, and then has noted what is not permitted.
func (i *inspection) refuses(command string, err error) bool {
	p := permissionOf(err)
	if p.command {
		i.denied = append(i.denied, command)
	}
	i.keys = i.keys || p.key
	return p.lacks()
}

// reads looks whether the server answers, and whether it may be asked for a bucket.
func (i *inspection) reads() bool {
	return !i.fails("hmget", i.ask("hmget", i.key, "tokens").Err())
}

// info looks at what INFO tells.
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
		i.findf("The memory, the version and the role of Redis could not be looked at, because it refuses INFO (%s): %s.", plainly(err), advice)
		return true
	}
	facts := parseInfo(text)
	i.full = i.find(facts.full())
	i.find(facts.evicts())
	if facts["role"] == "slave" {
		return !i.find(isReplica)
	}
	return !i.find(facts.tooOld())
}

// time looks at the clock.
func (i *inspection) time() bool {
	before := time.Now()
	reply, err := i.ask("time").Int64Slice()
	took := time.Since(before)
	if i.engine.clock != nil && err != nil && isRedis(err) {
		return true // the script does without
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

// writes looks whether a key may be given a TTL. Without that, the script would leave one for ever.
func (i *inspection) writes() bool {
	return !i.fails("pexpire", i.ask("pexpire", i.key, 1).Err()) && !slices.Contains(i.denied, "pexpire") && !i.keys
}

// rights notes what the user lacks.
func (i *inspection) rights() {
	if len(i.denied) > 0 {
		slices.Sort(i.denied)
		i.denied = slices.Compact(i.denied)
		clock := " +time"
		if i.engine.clock != nil {
			clock = ""
		}
		i.findf("The client's user may not run %s, which each decision needs: permit it with ACL SETUSER <user> +evalsha +eval%s +hmget +hset +pexpire.", strings.Join(i.denied, ", "), clock)
	}
	if i.keys {
		i.findf("The client's user may not read and write the keys of the Store: permit it with ACL SETUSER <user> ~%s:*.", i.engine.keys.prefix)
	}
}
