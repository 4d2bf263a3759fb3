package explain

import (
	"fmt"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	// maxColumns bounds the lines of String. Longer texts go on in the next line.
	maxColumns = 100

	// maxText bounds texts of the request, in bytes.
	maxText = 256
)

// A text is a text of lines of limited length.
type text struct{ b strings.Builder }

func (t *text) blank() { t.b.WriteByte('\n') }

// line adds a line, indented by that many levels.
func (t *text) line(level int, format string, args ...any) {
	t.item(level, "", fmt.Sprintf(format, args...))
}

// item adds a line that begins with mark. If it is too long, the lines that follow are indented by the mark.
func (t *text) item(level int, mark, words string) {
	if columns(mark) > maxColumns/2 {
		t.item(level, "", mark)
		level, mark = level+1, ""
	}
	indent := strings.Repeat("  ", min(level, 20))
	room := maxColumns - len(indent) - columns(mark)
	for first := true; first || words != ""; first = false {
		if !first {
			mark = strings.Repeat(" ", columns(mark))
		}
		var row string
		row, words = cut(words, room)
		t.b.WriteString(strings.TrimRight(indent+mark+row, " ") + "\n")
	}
}

// cut returns the beginning of words that has at most room columns, and the rest. It cuts at a blank if there is one.
func cut(words string, room int) (row, rest string) {
	blank, at := -1, 0
	for i, c := range words {
		if c == ' ' {
			blank = i
		}
		if at += columns(string(c)); at > room {
			if blank > 0 {
				return words[:blank], words[blank+1:]
			}
			return words[:i], words[i:]
		}
	}
	return words, ""
}

// columns returns how many columns a text takes, rather too many than too few: most characters that are not Latin take
// two.
func columns(text string) (n int) {
	for _, c := range text {
		n++
		if c >= 0x0300 {
			n++
		}
	}
	return n
}

// show returns printable text that is not too long.
func show(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return printable(text)
}

// printable escapes what a terminal might act on, and joins lines. It leaves a backslash alone, because most texts have been
// escaped already where they quote the request.
func printable(text string) string {
	return logtext.Printable(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\n", "; "))
}
