package admin

import (
	"encoding/json"
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

func (h *handler) factsJSON(c *call) error {
	return c.writeJSON(http.StatusOK, h.facts(c.r.Context()))
}

// writeJSON answers with v in ASCII, for operators who read it in a terminal.
func (c *call) writeJSON(status int, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	c.write(status, jsonType, append(logtext.EscapeJSON(text, nil), '\n'))
	return nil
}
