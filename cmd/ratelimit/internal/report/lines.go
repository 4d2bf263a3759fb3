package report

import (
	"fmt"
	"strings"
)

// columns is how wide the text is at most.
const columns = 100

// Colors of a terminal. They are never the only sign.
const (
	Bold   = "\x1b[1m"
	Red    = "\x1b[1;31m"
	Green  = "\x1b[1;32m"
	Yellow = "\x1b[1;33m"
)

// A Paint adds colors to texts, or does not.
type Paint bool

// In returns text in a color, which is an escape sequence.
func (p Paint) In(color, text string) string {
	if !p || color == "" || text == "" {
		return text
	}
	return color + text + "\x1b[0m"
}

// Wrap cuts a text into lines of at most so many columns.
func Wrap(text string, columns int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = cut(word, columns)
		if line != "" && width(line)+1+width(word) > columns {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// A text is the part of the report for a terminal that is written.
type text struct {
	strings.Builder
	Paint
	clock clock
	bound int64 // Report.Clients
}

// line writes a line, which must be short.
func (t *text) line(format string, args ...any) {
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

// say writes sentences in lines of at most 100 columns. The first begins with begin, the others with as many spaces.
func (t *text) say(begin, sentences string) { t.sayIn("", begin, sentences) }

func (t *text) sayIn(color, begin, sentences string) {
	for i, line := range Wrap(shown(sentences), columns-width(begin)) {
		if i == 1 {
			begin = strings.Repeat(" ", width(begin))
		}
		t.line("%s", t.In(color, begin+line))
	}
}

// table writes rows with columns of one width, below a head. An empty cell of the head belongs to the cell before it.
// paint may color lines.
func (t *text) table(align string, head []string, rows [][]string, paint func(row int, line string) string) {
	const gap = 2
	widths := make([]int, len(align))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}
	line := ""
	for i := 0; i < len(head); i++ {
		cell, first, room := head[i], i, widths[i]
		for i+1 < len(head) && head[i+1] == "" {
			i++
			room += gap + widths[i]
		}
		if more := width(cell) - room; more > 0 {
			widths[first] += more
			room += more
		}
		line += strings.Repeat(" ", gap) + pad(cell, room, align[first])
	}
	t.line("%s", cut(strings.TrimRight(line, " "), columns))
	for n, row := range rows {
		line := ""
		for i, cell := range row {
			line += strings.Repeat(" ", gap) + pad(cell, widths[i], align[i])
		}
		line = cut(strings.TrimRight(line, " "), columns)
		if paint != nil {
			line = paint(n, line)
		}
		t.line("%s", line)
	}
}
