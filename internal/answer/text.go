package answer

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Text is the text of a response, without markup. Package denial exports and documents it.
type Text struct{ Language, Title, Detail string }

// english returns the default text.
func english(p *problem) Text {
	t := Text{Language: "en"}
	switch p.status {
	case http.StatusTooManyRequests:
		t.Title = "Too many requests"
	case http.StatusBadRequest:
		t.Title = "Bad request"
	case http.StatusServiceUnavailable:
		t.Title = "Temporarily unavailable"
	default:
		t.Title = http.StatusText(p.status)
	}
	switch p.after {
	case 0:
	case store.Never:
		t.Detail = "This request asks for more than its limit ever allows."
	default:
		if t.Detail = tryAgain(p.after, p.until); p.atOnce {
			t.Detail = "Too many requests run at once. " + t.Detail
		}
	}
	return t
}

// tryAgain returns after in one unit. It is rounded up, so that a client that waits this long does not come too
// early. Each unit is used from two on, so that only one singular is needed. until is the end of a period, or zero.
func tryAgain(after time.Duration, until time.Time) string {
	unit, name := time.Second, " seconds"
	switch {
	case after >= 48*time.Hour:
		unit, name = 24*time.Hour, " days"
	case after >= 120*time.Minute:
		unit, name = time.Hour, " hours"
	case after >= 120*time.Second:
		unit, name = time.Minute, " minutes"
	case after == time.Second:
		name = " second"
	}
	n, in := after/unit, "Try again in "
	if after%unit != 0 {
		n, in = n+1, "Try again in about "
	}
	var room [96]byte
	text := append(strconv.AppendInt(append(room[:0], in...), int64(n), 10), name...)
	if !until.IsZero() {
		text = until.AppendFormat(append(text, ", from "...), time.RFC3339)
		text = append(text, " on"...)
	}
	return string(append(text, '.'))
}

// clean returns t without characters that no form of a response may contain.
func (t Text) clean() Text {
	t.Title, t.Detail = printable(t.Title), printable(t.Detail)
	if !validLanguage(t.Language) {
		t.Language = ""
	}
	return t
}

// printable returns s as valid UTF-8 without control characters.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

// lines returns t as a plain text body.
func (t Text) lines() []byte {
	b := append([]byte(t.Title), '\n')
	if t.Detail != "" {
		b = append(append(b, t.Detail...), '\n')
	}
	return b
}

// validLanguage reports whether s has only the characters of a language tag. For a header, that is enough.
func validLanguage(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		default:
			return false
		}
	}
	return len(s) <= 64
}
