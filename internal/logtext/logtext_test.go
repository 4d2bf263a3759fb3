package logtext_test

import (
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

func TestShow(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"Nothing", "", ""},
		{"What can be printed stays", `ip:192.0.2.1 "quoted" é 日本 <b>`, `ip:192.0.2.1 "quoted" é 日本 <b>`},
		{"Line breaks", "a\r\nb", `a\r\nb`},
		{"A terminal's escape sequence", "\x1b[2J", `\x1b[2J`},
		{"DEL", "a\x7f", `a\x7f`},
		{"A control character of C1", "\u009b31m", `\u009b31m`},
		{"What reverses text", "a\u202eb\u2066", `a\u202eb\u2066`},
		{"Line separators", "a\u2028b\u0085", `a\u2028b\u0085`},
		{"What has no width", "a\u200bb\ufeff", `a\u200bb\ufeff`},
		{"Bytes that are not UTF-8", "a\xff", `a\xff`},
		{"A backslash, which would pass for an escape", `a\n`, `a\\n`},
		{"A quote among what is escaped", "\"\n", `\"\n`},
		{"As long as may be", strings.Repeat("x", 40), strings.Repeat("x", 40)},
		{"Longer", strings.Repeat("x", 41), strings.Repeat("x", 40) + "…"},
		{"A cut within a rune", strings.Repeat("x", 39) + "é", strings.Repeat("x", 39) + `\xc3…`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := logtext.Show(tt.text, 40); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
