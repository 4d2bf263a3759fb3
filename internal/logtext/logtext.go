// Package logtext makes texts from clients safe for a log line or a terminal.
package logtext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
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

// Printable escapes the characters of text that a terminal might act on, and bytes that are not UTF-8. It keeps
// backslashes, so it is for texts of this program, which quote texts of clients that Show has escaped.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// EscapeJSON escapes the characters of a JSON text that are not in ASCII, and DEL, except for those that keep keeps. They
// must be in its strings: a key can hold characters that reverse or move text in a terminal. keep may be nil.
func EscapeJSON(text []byte, keep func(rune) bool) []byte {
	escaped := make([]byte, 0, len(text))
	for len(text) > 0 {
		plain := 0
		for plain < len(text) && text[plain] < 0x7f {
			plain++
		}
		escaped, text = append(escaped, text[:plain]...), text[plain:]
		if len(text) == 0 {
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case keep != nil && keep(r):
			escaped = append(escaped, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		text = text[size:]
	}
	return escaped
}
