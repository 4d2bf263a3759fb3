package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf16"
	"unicode/utf8"
)

func (h *handler) factsJSON(c *call) error {
	return c.writeJSON(http.StatusOK, h.facts(c.r.Context()))
}

// writeJSON answers with v in ASCII. A key can hold characters that reverse or move text in a terminal.
func (c *call) writeJSON(status int, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	c.write(status, jsonType, append(toASCII(text), '\n'))
	return nil
}

// toASCII escapes all other characters of a JSON text. They occur in its strings only.
func toASCII(text []byte) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f:
			out.WriteByte(text[0])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out.Bytes()
}
