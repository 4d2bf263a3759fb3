package command

import (
	"io"
	"strconv"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	columns = 100 // the most for sentences, and how wide a terminal is that does not say it
	fewest  = 20  // below that, lines break
)

// widthOf returns how many columns a terminal has. COLUMNS of the environment comes first.
func widthOf(w io.Writer, getenv func(string) string) int {
	n, err := strconv.Atoi(getenv("COLUMNS"))
	if f, ok := w.(interface{ Fd() uintptr }); err != nil && ok {
		n = widthOfTerminal(f.Fd())
	}
	if n <= 0 || n > 10_000 {
		return columns
	}
	return max(n, fewest)
}

// sentences returns how wide sentences are.
func (e *env) sentences() int {
	if e.terminal {
		return min(e.columns, columns)
	}
	return columns
}

// fit returns a text from elsewhere as it is safe on a terminal. It is shortened to the columns of a terminal, of which others
// use some. Where the output is no terminal, it stays whole.
func (e *env) fit(text string, others int) string {
	text = logtext.Show(text, len(text))
	if e.terminal {
		text = report.Middle(text, max(e.columns-others, fewest))
	}
	return text
}
