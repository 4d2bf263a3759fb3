package report

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// JSON writes the report as JSON. Times are in RFC 3339, durations are numbers of seconds, and limits have the form of
// ratelimit.ParseLimit. Texts are escaped so that they do nothing to a terminal.
func (r *Report) JSON(w io.Writer) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	_, err := w.Write(logtext.EscapeJSON(text.Bytes(), func(r rune) bool { return !unsafe(r) }))
	return err
}
