package redisstore

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// A permission is what the client's user lacks, as far as the error of a server says it.
type permission struct {
	command  bool // to run a command
	key      bool // to use a key
	inScript bool // for what the script runs
}

func (p permission) lacks() bool { return p.command || p.key }

// permissionOf returns what the user lacks, and nothing for an error that is not of the ACL. Before Redis 7.2, in
// KeyDB, since Redis 7.2 and in Valkey, the words for what a script runs differ, and are not those of NOPERM.
func permissionOf(err error) (p permission) {
	if !isRedis(err) {
		return p
	}
	text := err.Error()
	p.inScript = strings.Contains(text, "user executing the script ") || strings.Contains(text, "ACL failure in script: ")
	if !p.inScript && !redis.HasErrorPrefix(err, "NOPERM") {
		return p
	}
	undivided := strings.Contains(text, "no ACL permissions") // Dragonfly does not say for what
	p.key = undivided || strings.Contains(text, "permissions to access") || strings.Contains(text, "can't access")
	p.command = undivided || !p.key
	return p
}
