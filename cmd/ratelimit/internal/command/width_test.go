package command_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
)

// Keys are shortened by their middle, to the width of a terminal. Where the output is no terminal, they are whole.
func TestWidth(t *testing.T) {
	server := redistest.Start(t)
	key := "k:" + strings.Repeat("0123456789", 50) + "end"
	url := "redis://" + server.Addr()
	run(t, "limits", "set", "api", "60/1m", "-was", "60/1m", "-force", "-key", key[:400]+"end", "-redis", url).want(t, 0)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"version":2,"keys":[{"policy":"api","key":%q,"requests":1000}]}`, key)
	}))
	defer page.Close()
	for _, args := range [][]string{
		{"top", "-admin", page.URL}, {"peek", "-redis", url, "-policy", "api", key}, {"block", "-force", "-redis", url, "-policy", "api", key}, {"limits", "get", "-redis", url},
	} {
		for columns, most := range map[string]int{"60": 60, "120": 120, "": 100, "x": 100} {
			r := setup{terminal: true, env: map[string]string{"COLUMNS": columns}}.run(t, args...)
			r.want(t, 0, "end")
			for line := range strings.Lines(r.out) {
				// The texts behind a key are not cut.
				begin, end, cut := strings.Cut(line, "…")
				if end, _, _ = strings.Cut(end, "   "); cut && utf8.RuneCountInString(strings.TrimSpace(begin+end))+1 > most {
					t.Errorf("%s in %s columns: %s", args[0], columns, line)
				}
			}
			if !strings.Contains(r.out, "…") {
				t.Errorf("%s in %s columns: the key was not cut: %s", args[0], columns, r.out)
			}
		}
		if r := run(t, args...); strings.Contains(r.out, "…") || !strings.Contains(r.out, key[:400]) {
			t.Errorf("%s: no terminal: %s", args[0], r.out)
		}
	}
}
