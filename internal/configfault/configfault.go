// Package configfault lists the faults of a configuration, field by field, so that a file or a page can show them in its own
// words.
package configfault

import (
	"fmt"
	"strings"
)

// A Fault is what is wrong with one field.
type Fault struct {
	List  string // of policies that has the field, such as "Policies"; "" if the field is in none
	Index int    // of the policy in List; negative if List is one policy
	Name  string // of the policy

	Field string // as Go names it
	Value string // "" if the text says enough
	Text  string // what the field must be
}

// Error returns the fault in terms of Go.
func (f Fault) Error() string {
	text := f.Field + ": " + f.Text
	if f.Value != "" {
		text = f.Field + " " + f.Value + ": " + f.Text
	}
	switch {
	case f.List == "":
		return text
	case f.Index < 0:
		return fmt.Sprintf("%s (%q): %s", f.List, f.Name, text)
	}
	return fmt.Sprintf("%s[%d] (%q): %s", f.List, f.Index, f.Name, text)
}

// Faults are several of them, which are one error.
type Faults []Fault

// Error returns all faults, each on a line.
func (fs Faults) Error() string { return strings.Join(fs.Texts(), "\n") }

// Texts returns the errors of all faults.
func (fs Faults) Texts() (texts []string) {
	for _, f := range fs {
		texts = append(texts, f.Error())
	}
	return texts
}
