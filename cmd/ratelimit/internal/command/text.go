package command

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/mattn/go-colorable"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
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

// paintFor reports whether w takes colours: if it is a terminal, and the user has nothing against them. Only Windows seldom
// sets TERM, and a console there takes colours when it is asked to.
func paintFor(w io.Writer, getenv func(string) string) report.Paint {
	term := getenv("TERM")
	takes := term != ""
	if runtime.GOOS == "windows" && w == os.Stdout {
		colorable.EnableColorsStdout(&takes)
	}
	return report.Paint(isTerminal(w) && takes && term != "dumb" && getenv("NO_COLOR") == "")
}

func isTerminal(w any) bool {
	f, ok := w.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
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
