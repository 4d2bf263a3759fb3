package endtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/endtime"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 11, 26, 17, 30, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-11-27T18:00:00Z":      "2026-11-27T18:00:00Z",
		"2026-11-27T18:00:00+01:00": "2026-11-27T17:00:00Z",
		"2026-11-27":                "2026-11-27T00:00:00Z",
		"72h":                       "2026-11-29T17:30:00Z",
		" 1h30m ":                   "2026-11-26T19:00:00Z",
		"7d":                        "2026-12-03T17:30:00Z",
		"2020-01-01":                "2020-01-01T00:00:00Z", // of the past: the caller refuses it
	} {
		if end, err := endtime.Parse(text, now); err != nil || end.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v, want %s", text, end, err, want)
		}
	}
	if end, err := endtime.Parse(" ", now); err != nil || !end.IsZero() {
		t.Errorf("none: %v, %v", end, err)
	}
	for _, text := range []string{"Friday", "0s", "-1h", "-3d", "d", "99999d", "5", "2026-11-31", "2026-11-27 18:00", "1h\x00"} {
		if end, err := endtime.Parse(text, now); err == nil || !strings.Contains(err.Error(), "must be a time such as") {
			t.Errorf("%q: %v, %v", text, end, err)
		}
	}
}
