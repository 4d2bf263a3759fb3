package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// wordings are errors of servers, by the command that they answer. Those of scripts are as the script replies with
// them: see TestErrorsBeginWithTheirCode in package lua. The comments name the sources, in the repository of a server.
var wordings = []struct {
	servers   string
	command   string
	text      string
	finding   string // what Diagnose says
	uncharged bool   // whether a Take says that nothing was charged
}{
	// redis: src/server.c, src/scripting.c; KeyDB: src/server.cpp, src/scripting.cpp
	{"Redis 6.2, KeyDB 6.3", "hmget", "NOPERM this user has no permissions to run the 'hmget' command or its subcommand", "may not run hmget,", false},
	{"Redis 6.2, KeyDB 6.3", "pexpire", "NOPERM this user has no permissions to access one of the keys used as arguments", "the keys of the Store", false},
	{"Redis 6.2, KeyDB 6.3", "eval", "NOPERM this user has no permissions to run the 'eval' command or its subcommand", "may not run eval,", false},
	{"Redis 6.2, KeyDB 6.3", "eval", "The user executing the script can't run this command or subcommand", "may not run hset,", false},
	{"Redis 6.2, KeyDB 6.3", "eval", "The user executing the script can't access at least one of the keys mentioned in the command arguments", "the keys of the Store", false},
	{"Redis 6.2, KeyDB 6.3", "eval", "The user executing the script is lacking the permissions for the command", "may not run hset,", false},
	// redis: src/server.c, src/acl.c and src/script.c of 7.0
	{"Redis 7.0", "hmget", "NOPERM this user has no permissions to run the 'hmget' command", "may not run hmget,", false},
	{"Redis 7.0", "hmget", "NOPERM this user has no permissions to access one of the keys used as arguments", "the keys of the Store", false},
	{"Redis 7.0", "evalsha", "ERR The user executing the script can't run this command or subcommand", "may not run hset,", false},
	{"Redis 7.0", "evalsha", "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments", "the keys of the Store", false},
	// redis: src/acl.c and src/script.c from 7.2 on; valkey: the same files
	{"Redis 7.2 to 8, Valkey", "time", "NOPERM User limiter has no permissions to run the 'time' command", "may not run time,", false},
	{"Redis 7.2 to 8, Valkey", "evalsha", "NOPERM User limiter has no permissions to run the 'evalsha' command", "may not run evalsha,", false},
	{"Redis 7.2 to 8, Valkey", "hmget", "NOPERM No permissions to access a key", "the keys of the Store", false},
	{"Redis 7.2 to 8, Valkey", "eval", "ERR ACL failure in script: User limiter has no permissions to run the 'hset' command", "may not run hset,", false},
	{"Redis 7.2 to 8, Valkey", "eval", "ERR ACL failure in script: No permissions to access a key", "the keys of the Store", false},
	// garnet: libs/server/Resp/CmdStrings.cs
	{"Garnet", "time", "NOPERM this user has no permissions to run the command", "may not run time,", false},

	// redis: src/server.c and src/networking.c; valkey: the same files
	{"Redis 6.2 to 8, Valkey, KeyDB", "eval", "OOM command not allowed when used memory > 'maxmemory'.", "Redis has no memory left", true},
	{"Redis 6.2 to 8, Valkey, KeyDB, Dragonfly", "eval", "READONLY You can't write against a read only replica.", "is a replica", true},
	{"Redis 7 to 8, Valkey", "hmget", "LOADING Redis is loading the dataset in memory", "is still loading", true},
	{"Valkey 8", "hmget", "LOADING Valkey is loading the dataset in memory", "is still loading", true},
	{"KeyDB 6.3", "hmget", "LOADING KeyDB is loading the dataset in memory", "is still loading", true},
	{"Dragonfly", "hmget", "LOADING Dragonfly is loading the dataset in memory", "is still loading", true},
	{"Redis 6.2 to 8, Valkey, KeyDB", "eval", "NOREPLICAS Not enough good replicas to write.", "(NOREPLICAS Not enough", true},
	{"Redis 6.2", "eval", "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", "(MISCONF Redis is", true},
	{"Valkey 8", "eval", "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.", "(MISCONF Valkey is", true},
	{"Redis 6.2 to 8, Valkey, KeyDB", "hmget", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "(MASTERDOWN Link", true},
	{"Redis 6.2 to 8, Valkey, KeyDB", "hmget", "NOAUTH Authentication required.", "user or password", true},
	// dragonfly: src/facade/error.h
	{"Dragonfly", "eval", "ERR Out of memory", "Redis has no memory left", false},
}

// What Check advises, and whether nothing was charged, does not depend on which server says it.
func TestErrorsOfEveryServerAreUnderstood(t *testing.T) {
	server := redistest.Start(t).Addr()
	for _, w := range wordings {
		client := openOptions(t, "redis://"+server)
		client.AddHook(failing(func(name string) error {
			if name == w.command {
				return redisError(w.text)
			}
			return nil
		}))
		t.Run(w.servers+": "+w.command+": "+w.text, func(t *testing.T) {
			wantFindings(t, client, w.finding)
			sent := openOptions(t, "redis://"+server)
			sent.AddHook(failing(func(string) error { return redisError(w.text) }))
			_, err := tryFor(patient, ratelimit.Must(redisstore.New(sent, redisstore.Config{})), charge(t, "k"))
			var answer redis.Error
			if !errors.As(err, &answer) || !strings.HasSuffix(err.Error(), w.text) {
				t.Errorf("error %v, want %s", err, w.text)
			}
			if errors.Is(err, store.ErrNotCharged) != w.uncharged {
				t.Errorf("error %v: says that nothing was charged: %t, want %t", err, !w.uncharged, w.uncharged)
			}
		})
	}
}

// Dragonfly does not say whether a command or a key is not permitted.
func TestAServerThatDoesNotSayWhatIsNotPermitted(t *testing.T) {
	client := openOptions(t, "redis://"+redistest.Start(t).Addr())
	client.AddHook(failing(func(name string) error {
		if name == "hmget" {
			return redisError("NOPERM limiter has no ACL permissions") // src/server/main_service.cc
		}
		return nil
	}))
	wantFindings(t, client, "may not run hmget,", "the keys of the Store")
}
