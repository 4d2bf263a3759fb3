// Package logtext makes texts of strangers fit for a line of a log.
package logtext

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Show returns how a text appears of which clients choose a part: cut after most bytes, then with an ellipsis
// at its end, and if it holds a backslash or what cannot be printed, escaped as in a Go string.
//
// The handlers of slog escape, too, but not all of it: one lets DEL through, the other what reverses or moves
// text in a terminal, and those of others may let through anything.
func Show(text string, most int) string {
	end := ""
	if len(text) > most {
		text, end = text[:most], "…"
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == '\\' || !strconv.IsPrint(r) }) || !utf8.ValidString(text) {
		quoted := strconv.Quote(text)
		text = quoted[1 : len(quoted)-1]
	}
	return text + end
}
