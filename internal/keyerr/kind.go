package keyerr

import (
	"errors"
	"fmt"
)

// The log has a line for each kind of error, once in a while, in a bounded table. The text of an error may quote the
// request. If that made a kind, one client could fill the table, and the errors of others would share a line. So an
// error of a policy's functions has a kind that the program alone determines: the policy and a fixed reason.

// A kindError is an error with such a kind.
type kindError struct {
	kind string
	error
}

func (e *kindError) Unwrap() error { return e.error }

// New returns an error that wraps class and has a text that no request is a part of: the text is its kind.
func New(class error, format string, args ...any) error {
	err := fmt.Errorf("%w: %s", class, fmt.Sprintf(format, args...))
	return &kindError{err.Error(), err}
}

// WithKind returns err with a kind.
func WithKind(kind string, err error) error { return &kindError{kind, err} }

// OfPolicy returns an error of a function of the policy with that name.
func OfPolicy(name string, err error) error {
	return &kindError{name + ": " + reasonOf(err), fmt.Errorf("policy %s: %w", name, err)}
}

// reasonOf returns the kind of err, the first one if it wraps several. An error of a program's own function has that
// of its class, or the type of what it wraps.
func reasonOf(err error) string {
	if kind := Kind(err); kind != "" {
		return kind
	}
	for _, class := range []error{ErrBadRequest, ErrOutage, ErrNoKey} {
		if errors.Is(err, class) {
			return class.Error()
		}
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return fmt.Sprintf("%T", err)
}

// Kind returns the kind of err, "" if that has none, like the errors of a Store.
func Kind(err error) string {
	var e *kindError
	if errors.As(err, &e) {
		return e.kind
	}
	return ""
}
