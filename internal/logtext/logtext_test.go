package logtext_test

import (
	"encoding/json"
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
		if got := logtext.Show(tt.text, 40); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"What can be printed stays", `"a\n" é 日本`, `"a\n" é 日本`},
		{"A terminal's escape sequence", "é\x1b[2J", `é\x1b[2J`},
		{"What reverses text", "a\u202eb", `a\u202eb`},
		{"Bytes that are not UTF-8", "a\xffé", `a\xffé`},
		{"A replacement character", "a\ufffd", "a\ufffd"},
	} {
		if got := logtext.Printable(tt.text); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestEscapeJSON(t *testing.T) {
	for _, text := range []string{"plain", "a\u202eb", "é", "日本\U0001f600", "\x7f\n\"\\"} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		escaped := logtext.EscapeJSON(quoted, nil)
		if strings.ContainsFunc(string(escaped), func(r rune) bool { return r >= 0x7f }) {
			t.Errorf("%q: not ASCII: %s", text, escaped)
		}
		var got string
		if err := json.Unmarshal(escaped, &got); err != nil || got != text {
			t.Errorf("%q became %q (%v)", text, got, err)
		}
	}
	if got := string(logtext.EscapeJSON([]byte(`"é日"`), func(r rune) bool { return r != '日' })); got != `"é\u65e5"` {
		t.Errorf("got %s", got)
	}
}
