// Package keyerr has the errors of key functions: their classes, what is logged of them, and several as one.
package keyerr

import "errors"

// The classes of errors. Package ratelimit exports and documents them.
var (
	ErrNoKey      = errors.New("ratelimit: no key")
	ErrBadRequest = errors.New("ratelimit: bad request")
	ErrOutage     = errors.New("ratelimit: outage")
)

// IsNoKey reports whether err says that there is no key, and nothing worse. With ErrOutage, nobody could find out.
func IsNoKey(err error) bool {
	return errors.Is(err, ErrNoKey) && !errors.Is(err, ErrBadRequest) && !errors.Is(err, ErrOutage)
}
