package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

const changelogFile = "CHANGELOG.md"

var unreleased = regexp.MustCompile(`(?m)^## \[Unreleased\][ \t\r]*$`)

// datedChangelog returns text with what is under Unreleased as the section of version.
func datedChangelog(text []byte, version string, now time.Time) ([]byte, error) {
	number := strings.TrimPrefix(version, "v")
	if bytes.Contains(text, []byte("\n## ["+number+"]")) {
		return nil, fmt.Errorf("has a section of %s already: choose the next version", number)
	}
	heading := unreleased.FindIndex(text)
	if heading == nil {
		return nil, errors.New("has no line ## [Unreleased]: write what has changed below one")
	}
	after := text[heading[1]:]
	changes, _, _ := bytes.Cut(after, []byte("\n## "))
	if len(bytes.TrimSpace(changes)) == 0 {
		return nil, errors.New("has nothing below ## [Unreleased]: write there what has changed")
	}
	return fmt.Appendf(nil, "%s\n\n## [%s] - %s%s", text[:heading[1]], number, now.UTC().Format(time.DateOnly), after), nil
}
