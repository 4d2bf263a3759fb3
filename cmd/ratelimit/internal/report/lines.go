package report

import (
	"fmt"
	"strings"
)

const (
	// prose is how wide sentences are at most.
	prose = 100
	// narrowest is the least width that a text fits into.
	narrowest = 40
)

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
		word = Middle(word, columns)
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
	clock   clock
	columns int
	bound   int64 // Report.Clients
}

// line writes a line, which must be short.
func (t *text) line(format string, args ...any) {
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

// say writes sentences in lines. The first begins with begin, the others with as many spaces.
func (t *text) say(begin, sentences string) { t.sayIn("", begin, sentences) }

func (t *text) sayIn(color, begin, sentences string) {
	for i, line := range Wrap(shown(sentences), min(prose, t.columns)-width(begin)) {
		if i == 1 {
			begin = strings.Repeat(" ", width(begin))
		}
		t.line("%s", t.In(color, begin+line))
	}
}

// columnGap is the room before each column of a table.
const columnGap = 2

// table writes rows with columns of one width, below a head. An empty cell of the head belongs to the cell before it. The
// first column has what the others leave of the room. The last ones are left out if it has too little. paint may color
// lines.
func (t *text) table(align string, head []string, rows [][]string, paint func(row int, line string) string) {
	const least = 18
	widths, spare := t.widths(head, rows)
	for -spare > max(0, widths[0]-least) && len(widths) > 2 {
		head = head[:len(widths)-1]
		widths, spare = t.widths(head, rows)
	}
	widths[0] += min(0, spare)

	line := ""
	for i := 0; i < len(head); i++ {
		cell, first, room := head[i], i, widths[i]
		for i+1 < len(head) && head[i+1] == "" {
			i++
			room += columnGap + widths[i]
		}
		line += strings.Repeat(" ", columnGap) + pad(cut(cell, room), room, align[first])
	}
	t.line("%s", strings.TrimRight(line, " "))
	for n, row := range rows {
		line := ""
		for i, width := range widths {
			line += strings.Repeat(" ", columnGap) + pad(Middle(row[i], width), width, align[i])
		}
		line = strings.TrimRight(line, " ")
		if paint != nil {
			line = paint(n, line)
		}
		t.line("%s", line)
	}
}

// widths returns how wide the columns of a table would be, and how much room they leave.
func (t *text) widths(head []string, rows [][]string) (widths []int, spare int) {
	widths = make([]int, len(head))
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], width(row[i]))
		}
	}
	for i := 0; i < len(head); i++ {
		cell, first, room := head[i], i, widths[i]
		for i+1 < len(head) && head[i+1] == "" {
			i++
			room += columnGap + widths[i]
		}
		widths[first] += max(0, width(cell)-room)
	}
	spare = t.columns
	for _, width := range widths {
		spare -= columnGap + width
	}
	return widths, spare
}
