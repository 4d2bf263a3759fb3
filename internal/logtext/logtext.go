// Package logtext makes texts from clients safe for a log line.
package logtext

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Show returns text in a form that is safe for a log, for texts that clients can influence. A text of more than most
// bytes is cut and ends with an ellipsis. If it contains a backslash or unprintable characters, it is escaped as in a
// Go string.
//
// The handlers of slog escape as well, but not everything. One of them lets DEL through. The other lets through
// characters that reverse or move text in a terminal. Other handlers may let through anything.
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
