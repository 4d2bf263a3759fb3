package report

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// part returns n/all, or 0 of nothing.
func part(n, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// share writes a part of all.
func share(n, all int64) string { return numbers.Share(part(n, all)) }

// A clock writes times in UTC, with the day where the log has several.
type clock struct{ days bool }

// Clock returns the clock of the report.
func (r *Report) Clock() clock {
	return clock{r.From.UTC().Format(time.DateOnly) != r.To.UTC().Format(time.DateOnly)}
}

// At writes a time to the second.
func (c clock) At(t time.Time) string { return c.write(t, "15:04:05") }

// Of writes a time of spans of a length: to the minute, or to the second if they are shorter.
func (c clock) Of(t time.Time, length time.Duration) string {
	if length%time.Minute != 0 {
		return c.At(t)
	}
	return c.write(t, "15:04")
}

func (c clock) write(t time.Time, layout string) string {
	switch {
	case t.IsZero():
		return ""
	case c.days:
		layout = "2 Jan " + layout
	}
	return t.UTC().Format(layout)
}

// period writes the time of the log.
func (r *Report) period() string {
	const whole = "2 Jan 2006 15:04:05"
	to := r.To.UTC().Format(whole)
	if c := r.Clock(); !c.days {
		to = c.At(r.To)
	}
	return r.From.UTC().Format(whole) + " to " + to + " UTC"
}

// shown makes a text of the simulation safe, which may have parts that are escaped already.
func shown(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unsafe) {
		return text
	}
	return logtext.Show(text, len(text))
}

func unsafe(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return !strconv.IsPrint(r)
}

// key makes a key safe. It has at most so many columns, at least 10.
func key(text string, columns int) string {
	if most := 4 * columns; len(text) > 2*most { // it is not shown as a whole
		text = text[:most] + "…" + text[len(text)-most:]
	}
	return Middle(logtext.Show(text, len(text)), columns)
}

// terminal knows how many columns a text takes. Its result does not depend on the environment.
var terminal = &runewidth.Condition{}

// cut shortens a text to so many columns.
func cut(text string, columns int) string { return terminal.Truncate(text, columns, "…") }

// Middle shortens a text to so many columns of a terminal. It keeps the end, because keys often differ there.
func Middle(text string, columns int) string {
	if width(text) <= columns {
		return text
	}
	begin := terminal.Truncate(text, columns/2, "")
	return begin + terminal.TruncatePrefix(text, columns-width(begin), "…")
}

// width returns how many columns of a terminal a text takes.
func width(text string) int { return terminal.StringWidth(text) }

// pad fills a text up to so many columns, to the left or to the right.
func pad(text string, columns int, align byte) string {
	if align == 'r' {
		return terminal.FillLeft(text, columns)
	}
	return terminal.FillRight(text, columns)
}
