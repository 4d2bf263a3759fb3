package lua_test

import (
	"fmt"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// Both scripts reply with errors that begin with their code, by which clients know them, whatever the server puts
// before them.
func TestErrorsBeginWithTheirCode(t *testing.T) {
	l := bucket.Limit{Unit: 1, Refill: 1, Capacity: 10}
	keys, args := arguments("", []call{{1, []charge{{"k", term{limit: l, need: 1}}}}})
	for _, script := range []struct {
		source, command string
		args            []any
	}{
		{lua.Take, "HSET", args},
		{lua.Take, "TIME", args},
		{lua.Peek, "HMGET", []any{""}},
		{lua.Peek, "TIME", []any{""}},
	} {
		s := startInterpreter(t, script.source)
		for _, e := range []struct{ form, raised, want string }{
			// Redis 5 to 6.2 and KeyDB: luaPushError in src/scripting.c (.cpp). The line end of a reply becomes blanks.
			{"string", "@user_script: 183: -OOM command not allowed when used memory > 'maxmemory'.  ", "OOM command not allowed when used memory > 'maxmemory'."},
			{"string", "@user_script: 9: -READONLY You can't write against a read only replica.  ", "READONLY You can't write against a read only replica."},
			{"string", "@user_script: 183: -NOREPLICAS Not enough good replicas to write.  ", "NOREPLICAS Not enough good replicas to write."},
			{"string", "@user_script: 12: The user executing the script can't run this command or subcommand", "The user executing the script can't run this command or subcommand"},
			{"string", "WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE Operation against a key holding the wrong kind of value"},
			// Redis 7 and Valkey: luaPushErrorBuff in src/script_lua.c.
			{"table", "OOM command not allowed when used memory > 'maxmemory'.", "OOM command not allowed when used memory > 'maxmemory'."},
			{"table", "ERR ACL failure in script: No permissions to access a key", "ERR ACL failure in script: No permissions to access a key"},
		} {
			s.ask("fail", script.command, e.form, e.raised)
			if _, err := s.run(keys, script.args); fmt.Sprint(err) != e.want {
				t.Errorf("%s raises %q: error %v, want %s", script.command, e.raised, err, e.want)
			}
		}
	}
}
