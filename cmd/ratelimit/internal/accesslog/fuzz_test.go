package accesslog

import (
	"strings"
	"testing"
	"time"
)

func FuzzLines(f *testing.F) {
	f.Add(`192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET /a?b HTTP/1.1" 200 1 "-" "c\"d" "e"`+"\n\nx", "")
	f.Add(`{"time":1791640536.5,"addr":"192.0.2.1","method":"GET","url":"/\u00e9","status":200,"request":{"headers":{"User-Agent":["a",2]}}}`+"\r\n", "json")
	f.Add(`unix: - [ " [10/Oct/2026:13:55:36.1 +0530] "CONNECT a:443 HTTP/2" - -`, "common")
	f.Add("1 - - [0] \"PRI * HTTP/2.0\" 000 9223372036854775807 \"\\x\"", "combined")
	f.Add("\x1f\x8b\x08\x00\x00", "")
	f.Fuzz(func(t *testing.T, text, format string) {
		cfg := Config{Format: format}
		if cfg.check() != nil {
			return
		}
		entries, faults := read(t, cfg, strings.NewReader(text))
		lines := int64(len(entries) + len(faults))
		if !strings.HasPrefix(text, "\x1f\x8b") {
			want := int64(strings.Count(text, "\n"))
			if text != "" && !strings.HasSuffix(text, "\n") {
				want++
			}
			if lines != want {
				t.Errorf("%d lines, want %d", lines, want)
			}
		}
		for i := range entries {
			if e := &entries[i]; e.Time < 0 || e.Time >= maxTime || e.Bytes < 0 || e.Status != 0 && (e.Status < 100 || e.Status > 999) || e.Request.URL == nil || e.Request.RemoteAddr == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}

func FuzzTime(f *testing.F) {
	f.Add("10/Oct/2026:13:55:36 -0700")
	f.Add("29/Feb/2023:13:55:36 +0530")
	f.Add("2026-10-10T13:55:36.123456789Z")
	f.Add("2026-10-10T13:55:36+23:59")
	f.Add("1e18")
	f.Add("9223372036854775807.5")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseTime(text)
		for _, layout := range []string{"02/Jan/2006:15:04:05 -0700", time.RFC3339Nano} {
			want, err := time.Parse(layout, text)
			if err != nil || !ok && want.Format(layout) != text { // package time also accepts dates that nobody writes
				continue
			}
			if !ok || got != want.UnixMicro() {
				t.Errorf("%d %t, want %d", got, ok, want.UnixMicro())
			}
		}
	})
}
