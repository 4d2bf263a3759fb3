package command

import (
	"fmt"
	"strings"
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

// trim returns err without the names of packages and functions in its text.
func trim(err error) error { return &trimmed{err} }

type trimmed struct{ error }

var packages = strings.NewReplacer("redisstore: ", "", "ClusterOptions: ", "", "Options: ", "", "override: ", "", "simulate: ", "", "policyfile: ", "", "ratelimit: ", "")

func (t *trimmed) Error() string { return packages.Replace(t.error.Error()) }

func (t *trimmed) Unwrap() error { return t.error }
