package command

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// maxShown is how many bytes of a text from elsewhere are shown.
const maxShown = 256

// show returns a text from elsewhere as it is safe on a terminal.
func show(text string) string { return logtext.Show(text, maxShown) }

// showLong is show for a text of several sentences.
func showLong(text string) string { return logtext.Show(text, 4*maxShown) }

// shown returns a word of the command line for an error. It leaves out what may have a password.
func shown(arg string) string {
	if strings.ContainsAny(arg, "@") || strings.Contains(arg, "://") {
		return "an argument that is not shown, because it may have a password"
	}
	return logtext.Show(arg, 64)
}

// plain returns the text of an error as it is safe on a terminal, without the arguments that some servers repeat: one
// may be a password. It keeps line breaks, and escapes no backslashes, because what is quoted has some.
func plain(err error) string {
	var b strings.Builder
	for line := range strings.Lines(err.Error()) {
		text, broken := strings.CutSuffix(line, "\n")
		text, _, _ = strings.Cut(text, ", with args beginning with")
		b.WriteString(logtext.Printable(text))
		if broken {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// An output remembers the first error of writing.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// paint adds colours to texts, or does not.
type paint bool

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

func (p paint) in(color, text string) string {
	if !p || color == "" || text == "" {
		return text
	}
	return color + text + "\x1b[0m"
}

// paintFor reports whether w takes colours: if it is a terminal, and the user has nothing against them.
func paintFor(w io.Writer, getenv func(string) string) paint {
	term := getenv("TERM")
	return paint(isTerminal(w) && term != "dumb" && getenv("NO_COLOR") == "" && takesColours(w, term))
}

func isTerminal(w any) bool {
	f, ok := w.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// shortly returns a duration without zeros at its end: "15m".
func shortly(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// roughly returns a duration as people read it: to three digits or to the second.
func roughly(d time.Duration) string {
	const century = 100 * 365 * 24 * time.Hour
	d = min(max(d, -century), century)
	switch {
	case d < 0:
		return "-" + roughly(-d)
	case d >= 10*time.Second:
		d = ceil(d, time.Second)
	case d >= time.Second:
		d = ceil(d, 100*time.Millisecond)
	case d >= time.Millisecond:
		d = ceil(d, time.Millisecond)
	}
	return shortly(d)
}

// ceil rounds up, so that a client that waits for the time shown is allowed.
func ceil(d, to time.Duration) time.Duration { return (d + to - 1) / to * to }

// thousands returns n with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// writeJSON writes v in ASCII, for a terminal.
func writeJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(logtext.EscapeJSON(text, nil), '\n'))
	return err
}

// wrap cuts text into lines.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}
