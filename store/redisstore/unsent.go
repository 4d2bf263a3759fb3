package redisstore

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An unsent is the error of a call, or of a part of a call, that was certainly not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// An unchargedError is the error of a call that certainly charged nothing.
type unchargedError struct{ error }

func (u unchargedError) Unwrap() []error { return []error{u.error, store.ErrNotCharged} }

// uncharged wraps err, the error of a single command, in an unchargedError if the command certainly charged nothing.
// It is not for a call in several parts: if one was not sent, the others may have been.
func uncharged(err error) error {
	if certain(err) {
		return unchargedError{err}
	}
	return err
}

// before are the errors of a server that has not changed a bucket. Either it runs no script, or it refuses the first
// write of a script and all later ones for the same reason.
var before = [...]string{
	"LOADING", "BUSY", "NOAUTH", "WRONGPASS", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "OOM",
	"CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN",
}

// certain reports whether err means that a command was not carried out and will not be.
func certain(err error) bool {
	var u unsent
	if errors.As(err, &u) {
		return true
	}
	for _, known := range [...]error{ErrQueueFull, ErrClosed, redis.ErrClosed, redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, known) {
			return true
		}
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		return true
	}
	for _, prefix := range before {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
