package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// count writes a whole number in groups of three digits.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// of writes a number of things: "1 client", "1,200 clients".
func of(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return count(n) + " " + thing
}

// part returns n/all, or 0 of nothing.
func part(n, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}

// share writes a part of all with the digits that matter. Only nothing is 0 %, and only all is 100 %.
func share(n, all int64) string {
	p := 100 * part(n, all)
	switch {
	case n == 0 || all == 0:
		return "0 %"
	case n == all:
		return "100 %"
	case p < 0.01:
		return "<0.01 %"
	case p > 99.9:
		return ">99.9 %"
	case p < 0.995:
		return strconv.FormatFloat(p, 'f', 2, 64) + " %"
	case p < 9.95, p >= 99.5:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

// percent writes a part of 1 that somebody chose: "99.9 %".
func percent(x float64) string {
	return strconv.FormatFloat(math.Round(x*1e8)/1e6, 'f', -1, 64) + " %"
}

// span writes seconds with two units at most: "0.35 s", "14 min 20 s".
func span(s float64) string {
	whole := int64(min(s, math.MaxInt64/2))
	switch {
	case s == 0:
		return "0 s"
	case s < 0.01:
		return "<0.01 s"
	case s < 1:
		return strconv.FormatFloat(s, 'f', 2, 64) + " s"
	case s < 10:
		return strings.TrimSuffix(strconv.FormatFloat(s, 'f', 1, 64), ".0") + " s"
	case s < 120:
		return fmt.Sprintf("%d s", whole)
	case s < 2*3600:
		return two(whole/60, "min", whole%60, "s")
	case s < 48*3600:
		return two(whole/3600, "h", whole%3600/60, "min")
	default:
		return two(whole/86400, "d", whole%86400/3600, "h")
	}
}

func two(most int64, unit string, rest int64, of string) string {
	if rest == 0 {
		return fmt.Sprintf("%s %s", count(most), unit)
	}
	return fmt.Sprintf("%s %s %d %s", count(most), unit, rest, of)
}

// size writes a number of bytes.
func size(n int64) string {
	switch {
	case n < 10_000:
		return of(n, "byte")
	case n < 10_000_000:
		return count(n/1000) + " KB"
	default:
		return count(n/1_000_000) + " MB"
	}
}

// A clock writes times in the zone of the log, with the day where the log has several.
type clock struct {
	zone *time.Location
	days bool
}

func (r *Report) clock() clock {
	c := clock{zone: r.From.Location()}
	c.days = r.From.Format(time.DateOnly) != r.To.In(c.zone).Format(time.DateOnly)
	return c
}

// at writes a time to the second.
func (c clock) at(t time.Time) string { return c.write(t, "15:04:05") }

// of writes a time of spans of a length: to the minute, or to the second if they are shorter.
func (c clock) of(t time.Time, length time.Duration) string {
	if length%time.Minute != 0 {
		return c.write(t, "15:04:05")
	}
	return c.write(t, "15:04")
}

func (c clock) write(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	if c.days {
		layout = "2 Jan " + layout
	}
	return t.In(c.zone).Format(layout)
}

// zoneOf writes the zone of the log.
func (c clock) zoneOf(t time.Time) string {
	if offset := t.In(c.zone).Format("-07:00"); offset != "+00:00" {
		return "UTC" + offset
	}
	return "UTC"
}

// period writes the time of the log.
func (r *Report) period() string {
	c := r.clock()
	to := r.To.In(c.zone).Format("15:04:05")
	if c.days {
		to = r.To.In(c.zone).Format("2 Jan 2006 15:04:05")
	}
	return r.From.Format("2 Jan 2006 15:04:05") + " to " + to + " " + c.zoneOf(r.From)
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
func key(text string, columns int) string { return cut(logtext.Show(text, 4*columns), columns) }

// cut shortens a text to so many columns.
func cut(text string, columns int) string {
	if width(text) <= columns {
		return text
	}
	used := 0
	for i, r := range text {
		if used += widthOf(r); used > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// width returns how many columns of a terminal a text takes, or more.
func width(text string) (n int) {
	for _, r := range text {
		n += widthOf(r)
	}
	return n
}

func widthOf(r rune) int {
	switch {
	case r < 0x300: // no combining mark
		return 1
	case unicode.Is(unicode.Mn, r):
		return 0
	case r >= 0x1100 && (r < 0x2000 || r > 0x27ff): // many of these are wide
		return 2
	}
	return 1
}
