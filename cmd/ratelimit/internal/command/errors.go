package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A statusError ends a command with a status. Without an err, everything has been written already.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// ended returns an error for a command that has written everything.
func ended(status int) error {
	if status == done {
		return nil
	}
	return &statusError{status: status}
}

// A usageError is one of the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func wrongUsage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// trim returns err without the names of packages in its text.
func trim(err error) error { return &trimmed{err} }

// A trimmed is an error whose text has no names of packages.
type trimmed struct{ error }

func (t *trimmed) Error() string {
	text := strings.ReplaceAll(t.error.Error(), "redisstore: ", "")
	return strings.TrimPrefix(strings.TrimPrefix(text, "limits: "), "simulate: ")
}

func (t *trimmed) Unwrap() error { return t.error }

// unanswered explains an error of Redis. changes reports that the call would have changed a bucket.
func unanswered(err error, c *connection, changes bool) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	err = fmt.Errorf("%s: %w", c.server, trim(err))
	if changes && !errors.Is(err, store.ErrNotCharged) {
		err = fmt.Errorf("%w\nIt is not known whether it was done: look with ratelimit peek.", err)
	}
	return err
}
