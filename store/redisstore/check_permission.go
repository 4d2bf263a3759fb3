package redisstore

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// A permission is the missing right of the client's user, if the server's error names it.
type permission struct {
	command  bool // to run a command
	key      bool // to use a key
	inScript bool // for a command or key of the script
}

func (p permission) lacks() bool { return p.command || p.key }

// permissionOf returns the right that the user lacks, or the zero value for an error that is not of the ACL. Errors
// inside of scripts have their own texts: one before Redis 7.2, one in KeyDB, and one since Redis 7.2 and in Valkey.
// None of these begins with NOPERM.
func permissionOf(err error) (p permission) {
	if !isRedis(err) {
		return p
	}
	text := err.Error()
	p.inScript = strings.Contains(text, "user executing the script ") || strings.Contains(text, "ACL failure in script: ")
	if !p.inScript && !redis.HasErrorPrefix(err, "NOPERM") {
		return p
	}
	undivided := strings.Contains(text, "no ACL permissions") // Dragonfly does not say whether a command or a key is meant
	p.key = undivided || strings.Contains(text, "permissions to access") || strings.Contains(text, "can't access")
	p.command = undivided || !p.key
	return p
}
