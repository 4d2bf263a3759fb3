package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

const isReplica = "This Redis is a replica, which refuses to charge buckets: use the address of its master, or a client of redis.NewFailoverClient without ReplicaOnly."

// explain returns the problem of a server that answered with err, or did not answer.
func explain(ctx context.Context, err error) string {
	if !isRedis(err) {
		return silent(ctx, err)
	}
	is := func(prefixes ...string) bool {
		for _, prefix := range prefixes {
			if redis.HasErrorPrefix(err, prefix) {
				return true
			}
		}
		return false
	}
	switch {
	case is("NOAUTH", "WRONGPASS", "AUTH "):
		return fmt.Sprintf("Redis refuses the client's user or password (%s): set Options.Username and Options.Password, or those of the URL, to what the server has.", plainly(err))
	case is("READONLY"):
		return isReplica
	case is("OOM", "Out of memory"):
		return "Redis has no memory left, and refuses to charge buckets: raise it with CONFIG SET maxmemory, or give the limiter a Redis of its own."
	case is("LOADING"):
		return "Redis is still loading its data, and decides nothing until it is done: wait for it."
	case is("MOVED", "ASK"):
		return "This Redis is a node of a cluster, and has only some of the keys: use a client of redis.NewClusterClient, with redisstore.ClusterOptions."
	case is("unknown command"):
		return fmt.Sprintf("This server does not have all commands that a decision needs (%s): use Redis 6.2 or newer, without a proxy that takes away commands.", plainly(err))
	default:
		return fmt.Sprintf("Redis answers what a decision needs with an error (%s): mend what it says.", plainly(err))
	}
}

// silent returns the problem of a server that did not answer; err is the client's error.
func silent(ctx context.Context, err error) string {
	why := plainly(err)
	if ctx.Err() != nil || ended(ctx, err) {
		why = "no reply in time"
	}
	return fmt.Sprintf("Redis does not answer (%s): start it, or correct the address in the client's options.", why)
}

// plainly returns the text of err without arguments. Some servers repeat the arguments, and one may be a password.
func plainly(err error) string {
	text, _, _ := strings.Cut(err.Error(), ", with args beginning with")
	return strings.TrimSpace(strings.TrimPrefix(text, "redisstore: "))
}
