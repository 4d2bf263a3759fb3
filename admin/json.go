package admin

import (
	"encoding/json"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// writeJSON answers with v in ASCII, for operators who read it in a terminal.
func (c *call) writeJSON(status int, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	c.write(status, jsonType, append(logtext.EscapeJSON(text, nil), '\n'))
	return nil
}
