package ratetest

import (
	"net/http"
	"testing"
)

// Lines returns the headers of a response. It fails if a header has several lines.
func Lines(t *testing.T, h http.Header) map[string]string {
	t.Helper()
	lines := make(map[string]string)
	for name, values := range h {
		if len(values) != 1 {
			t.Errorf("%s is there %d times: %q", name, len(values), values)
		}
		lines[name] = values[0]
	}
	return lines
}
