// Package failure has the classes of errors of key functions, and joins several errors to one. It also logs failures. Of
// each kind it logs a line a second, so that an outage does not fill the log.
package failure

import "errors"

// The classes of errors. Package ratelimit exports and documents them.
var (
	ErrNoKey      = errors.New("ratelimit: no key")
	ErrBadRequest = errors.New("ratelimit: bad request")
	ErrOutage     = errors.New("ratelimit: outage")
)

// IsNoKey reports whether err means only that there is no key. With ErrOutage, this is not known.
func IsNoKey(err error) bool {
	return errors.Is(err, ErrNoKey) && !errors.Is(err, ErrBadRequest) && !errors.Is(err, ErrOutage)
}
