package failure

import (
	"slices"
	"strings"
)

// Reasons collects the errors of several ways to find a key. It allocates nothing until all have failed.
type Reasons struct {
	errs [4]error // the first ones
	n    int
}

// Add adds a reason.
func (w *Reasons) Add(err error) {
	if w.n < len(w.errs) {
		w.errs[w.n] = err
		w.n++
	}
}

// Err returns one error with all reasons.
func (w *Reasons) Err() error {
	switch w.n {
	case 0:
		return ErrNoKey
	case 1:
		return w.errs[0]
	}
	all := noKeys(w.errs[:w.n:w.n])
	return slices.Clone(all)
}

// noKeys are errors that all wrap ErrNoKey.
type noKeys []error

func (e noKeys) Unwrap() []error { return e }

func (e noKeys) Error() string {
	var text strings.Builder
	text.WriteString(ErrNoKey.Error())
	for i, err := range e {
		text.WriteString([]string{": ", "; "}[min(i, 1)])
		text.WriteString(strings.TrimPrefix(err.Error(), ErrNoKey.Error()+": "))
	}
	return text.String()
}
