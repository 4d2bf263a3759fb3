package lua_test

import (
	"fmt"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// All scripts reply with errors that begin with their code, by which clients know them, whatever the server puts
// before them.
func TestErrorsBeginWithTheirCode(t *testing.T) {
	l := bucket.Limit{Unit: 1, Refill: 1, Capacity: 10}
	one := []charge{{"k", term{limit: l, need: 1}}}
	keys, args := arguments("", []call{{1, one}})
	_, held := arguments("", []call{{1, []charge{{"k", slotsTerm(1, 1, claim{"a", 1, 0, "fresh", -1}.String())}}}})
	set := []string{"s", "s#versions", "s#ends"}
	for _, script := range []struct {
		source, command string
		keys            []string
		args            []any
	}{
		{lua.Take, "HMGET", keys, args},
		{lua.Take, "HSET", keys, args},
		{lua.Take, "PEXPIRE", keys, args},
		{lua.Take, "HGETALL", keys, held},
		{lua.Block, "HMGET", keys, []any{"", 1000, ""}},
		{lua.Block, "HSET", keys, []any{"", 1000, ""}},
		{lua.Block, "TIME", keys, []any{"", 1000, ""}},
		{lua.Peek, "HMGET", keys, []any{""}},
		{lua.Peek, "TIME", keys, []any{""}},
		{lua.Values, "TIME", set, []any{"", "n", 0, 0}},
		{lua.Values, "ZRANGE", set, []any{"", "n", 0, 0}},
		{lua.Values, "HMGET", set, []any{"", "n", 0, 0}},
		{lua.Values, "ZADD", set, []any{"", "n", 0, 0, "t"}},
		{lua.Values, "HSET", set, []any{"", "n", 0, 0, "t"}},
		{lua.Values, "PERSIST", set, []any{"", "n", 0, 0, "t"}},
	} {
		s := startInterpreter(t, script.source)
		for _, e := range []struct{ form, raised, want string }{
			// Redis 6.2 and KeyDB: luaPushError in src/scripting.c (.cpp). The line end of a reply becomes blanks.
			{"string", "@user_script: 183: -OOM command not allowed when used memory > 'maxmemory'.  ", "OOM command not allowed when used memory > 'maxmemory'."},
			{"string", "@user_script: 9: -READONLY You can't write against a read only replica.  ", "READONLY You can't write against a read only replica."},
			{"string", "@user_script: 183: -NOREPLICAS Not enough good replicas to write.  ", "NOREPLICAS Not enough good replicas to write."},
			{"string", "@user_script: 12: The user executing the script can't run this command or subcommand", "The user executing the script can't run this command or subcommand"},
			{"string", "WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE Operation against a key holding the wrong kind of value"},
			// Redis 7 and Valkey: luaPushErrorBuff in src/script_lua.c.
			{"table", "OOM command not allowed when used memory > 'maxmemory'.", "OOM command not allowed when used memory > 'maxmemory'."},
			{"table", "ERR ACL failure in script: No permissions to access a key", "ERR ACL failure in script: No permissions to access a key"},
		} {
			s.flush() // PEXPIRE is called for a new bucket only
			s.ask("fail", script.command, e.form, e.raised)
			if _, err := s.run(script.keys, script.args); fmt.Sprint(err) != e.want {
				t.Errorf("%s raises %q: error %v, want %s", script.command, e.raised, err, e.want)
			}
		}
	}
}

// A script of one call that Redis refuses before it has written anything replies with nil, and take.lua with the error. It
// replies with the error after that.
func TestScriptsOfOneCallLeaveErrorsToTake(t *testing.T) {
	one := charge{"k", term{limit: bucket.Limit{Unit: 1, Refill: 1, Capacity: 10}, need: 1}}
	hourly := quotaCharge(t, "k", 10, bucket.Hour, 1, 1_780_000_000_000_000)
	for _, charges := range [][]charge{{one}, {one, {"l", one.term}}, {hourly}} {
		script, keys, args := aloneArguments("", call{1, charges})
		source := map[int]string{useOne: lua.TakeOne, useQuota: lua.TakeQuota, useFew: lua.TakeFew}[script]
		for command, want := range map[string]string{"TIME": "redis: nil", "HMGET": "redis: nil", "HSET": "redis: nil", "PEXPIRE": "NOPERM no"} {
			s := startInterpreter(t, source)
			s.ask("fail", command, "table", "NOPERM no")
			if reply, err := s.run(keys, args); fmt.Sprint(err) != want {
				t.Errorf("%d charges: %s fails: %v, error %v, want %s", len(charges), command, reply, err, want)
			}
		}
		s := startInterpreter(t, source)
		if _, err := s.run(keys, args); err != nil {
			t.Fatal(err)
		}
		s.ask("fail", "PTTL", "table", "NOPERM no")
		s.ask("time", 1_780_000_001, 0)
		if script == useQuota {
			continue // it sets no TTL again within a period
		}
		if reply, err := s.run(keys, args); fmt.Sprint(err) != "redis: nil" {
			t.Errorf("%d charges: PTTL fails: %v, error %v", len(charges), reply, err)
		}
	}
}
