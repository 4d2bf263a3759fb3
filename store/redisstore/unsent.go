package redisstore

import (
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store"
)

// An unsent is the error of a call, or of a part of one, that was certainly not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// An unchargedError is the error of a call that certainly charged nothing.
type unchargedError struct{ error }

func (u unchargedError) Unwrap() []error { return []error{u.error, store.ErrNotCharged} }

// uncharged returns err, the error of a call that is one command, and has it say so if the call charged nothing. Of a
// call in several parts, one that was not sent says nothing about the others.
func uncharged(err error) error {
	if certain(err) {
		return unchargedError{err}
	}
	return err
}

// before are answers of a server that looks at no bucket, or at least writes none: it fails the first write of a
// script, and the others for the same reason.
var before = [...]string{
	"LOADING", "BUSY", "NOAUTH", "WRONGPASS", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "OOM",
	"CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN",
}

// certain reports whether err says that a command was not carried out, nor will be.
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
