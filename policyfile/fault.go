package policyfile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// maxFaults bounds [Faults].
const maxFaults = 50

// A Fault is one thing that is wrong with a file, where, and what would be right.
type Fault struct {
	File         string
	Line, Column int    // from 1, the column in characters
	Field        string // such as "policies[1].limit", "" for the file as a whole
	Text         string
	Lacks        string // the name of a function that the Registry does not have, "" for all other faults
}

// String returns the fault on one line, as compilers write it.
func (f Fault) String() string {
	if f.Field == "" {
		return fmt.Sprintf("%s:%d:%d: %s", shown(f.File), f.Line, f.Column, f.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", shown(f.File), f.Line, f.Column, f.Field, f.Text)
}

// shown returns a text of the file system or of a file that is safe for a terminal. A backslash stays, because names of
// files have it on Windows.
func shown(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return logtext.Show(text, 256)
	}
	return text
}

// quote returns a text of a file for a fault.
func quote(text string) string { return `"` + logtext.Show(text, 64) + `"` }

// Faults are all faults of a file, at most 50, by line.
type Faults []Fault

// Error returns all faults, each on a line.
func (fs Faults) Error() string {
	var lines []string
	for _, f := range fs {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}
