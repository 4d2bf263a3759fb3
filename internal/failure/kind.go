package failure

import (
	"errors"
	"fmt"
	"strings"
)

// The log has one line in a period for each kind of error, in a bounded table. The text of an error may quote the
// request. If this text were the kind, one client could fill the table, and the errors of other clients would share a
// line. So only the program determines the kind of an error of a policy's functions: it is the policy and a fixed
// reason.

// A kindError is an error with such a kind.
type kindError struct {
	kind string
	error
	quotes error // what may quote credentials, nil: nothing
}

func (e *kindError) Unwrap() error { return e.error }

// New returns an error that wraps class. Its text is its kind, so it must not contain parts of a request.
func New(class error, format string, args ...any) error {
	err := fmt.Errorf("%w: %s", class, fmt.Sprintf(format, args...))
	return &kindError{kind: err.Error(), error: err}
}

// WithKind returns err with a kind.
func WithKind(kind string, err error) error { return &kindError{kind: kind, error: err} }

// Quoting returns an error that wraps class and err, for an err that may quote credentials. Its kind must not.
func Quoting(kind string, class, err error) error {
	return &kindError{kind, fmt.Errorf("%w: %w", class, err), err}
}

// Text returns the text of err, with the kinds of errors that may quote credentials instead of their texts.
func Text(err error) string { return unquoted(err.Error(), err) }

func unquoted(text string, err error) string {
	if e, ok := err.(*kindError); ok && e.quotes != nil {
		return strings.ReplaceAll(text, e.quotes.Error(), e.kind)
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			return unquoted(text, inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range err.Unwrap() {
			text = unquoted(text, inner)
		}
	}
	return text
}

// OfPolicy returns an error of a function of the policy with that name.
func OfPolicy(name string, err error) error {
	return &kindError{kind: name + ": " + reasonOf(err), error: fmt.Errorf("policy %s: %w", name, err)}
}

// reasonOf returns the kind of err, or the first kind if it wraps several. An error of a user's function has the kind
// of its class, or the type of the wrapped error.
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

// Kind returns the kind of err. It returns "" for errors without one, such as the errors of a Store.
func Kind(err error) string {
	var e *kindError
	if errors.As(err, &e) {
		return e.kind
	}
	return ""
}
