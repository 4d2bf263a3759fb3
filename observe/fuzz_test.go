package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// No text of a client may forge a line or an attribute: what is read back from each line are the attributes
// that it should have, in order, with the texts as they were.
func FuzzDenialLines(f *testing.F) {
	f.Fuzz(func(t *testing.T, policy, key, route, failure string) {
		events := []*ratelimit.Event{
			denial(policy, key),
			{Route: route, Err: fmt.Errorf("%w: %s", ratelimit.ErrNoKey, failure)},
		}
		events[0].Route = route
		whole := func(text string) string {
			return text[:min(len(text), 256)] + map[bool]string{true: "…"}[len(text) > 256]
		}
		want := [][][2]string{
			{
				{"level", "INFO"}, {"msg", "ratelimit: denied"}, {"policy", policy}, {"key", whole(key)}, {"route", route},
				{"limit", "1/1m"}, {"cost", "1"}, {"shadow", "false"}, {"degraded", "false"}, {"denials_not_logged", "0"},
			},
			{
				{"level", "INFO"}, {"msg", "ratelimit: no key"}, {"error", whole(events[1].Err.Error())}, {"route", route},
				{"denials_not_logged", "0"},
			},
		}
		for format, read := range map[string]struct {
			handler func(io.Writer, *slog.HandlerOptions) slog.Handler
			line    func(string) ([][2]string, error)
			text    func(string) string // what is left of a text
		}{
			"text": {
				func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
				readText,
				func(s string) string { return s },
			},
			"JSON": {
				func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
				readJSON,
				func(s string) string { return string([]rune(s)) }, // it has no bytes that are not UTF-8
			},
		} {
			var out bytes.Buffer
			observe := observe.LogDenials(observe.LogConfig{Logger: slog.New(read.handler(&out, withoutTime))})
			for _, e := range events {
				observe(context.Background(), e)
			}
			lines := slices.Collect(strings.Lines(out.String()))
			if len(lines) != len(want) {
				t.Fatalf("%s: %d lines, want %d:\n%s", format, len(lines), len(want), out.String())
			}
			for i, line := range lines {
				got, err := read.line(strings.TrimSuffix(line, "\n"))
				if err != nil {
					t.Fatalf("%s: %q: %v", format, line, err)
				}
				var wanted [][2]string
				for j, attr := range want[i] {
					switch attr[0] {
					case "key", "error":
						if j < len(got) {
							got[j][1] = original(t, got[j][1])
						}
					default:
						attr[1] = read.text(attr[1])
					}
					wanted = append(wanted, attr)
				}
				if !slices.Equal(got, wanted) {
					t.Errorf("%s: got %q\nwant %q", format, got, wanted)
				}
			}
		}
	})
}

// original returns what a text of a client was that appears in a line, which must be printable.
func original(t *testing.T, shown string) string {
	if strings.IndexFunc(shown, func(r rune) bool { return !strconv.IsPrint(r) }) >= 0 {
		t.Errorf("%q is not printable", shown)
	}
	if !strings.Contains(shown, `\`) {
		return shown
	}
	text, err := strconv.Unquote(`"` + shown + `"`)
	if err != nil {
		t.Errorf("%q was not escaped", shown)
	}
	return text
}

// readText reads the attributes of a line of a slog.TextHandler, and refuses all that is not one.
func readText(line string) (attrs [][2]string, err error) {
	for {
		name, rest, found := strings.Cut(line, "=")
		if !found || strings.ContainsAny(name, " \"\\") {
			return nil, fmt.Errorf("no attribute: %q", line)
		}
		value, more, again := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil && quoted[0] == '"' {
			value, _ = strconv.Unquote(quoted)
			more, again = strings.CutPrefix(rest[len(quoted):], " ")
			if !again && more != "" {
				return nil, fmt.Errorf("%q follows a quoted value", more)
			}
		} else if strings.IndexFunc(value, func(r rune) bool { return r == '"' || r == '=' || !strconv.IsPrint(r) && r != 0x7f }) >= 0 {
			return nil, fmt.Errorf("%q is not quoted", value)
		}
		attrs = append(attrs, [2]string{name, value})
		if !again {
			return attrs, nil
		}
		line = more
	}
}

// readJSON reads the attributes of a line of a slog.JSONHandler, in their order.
func readJSON(line string) (attrs [][2]string, err error) {
	if strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r == '\u2028' || r == '\u2029' }) >= 0 {
		return nil, fmt.Errorf("a control character or line separator")
	}
	all := make(map[string]any)
	if err := json.Unmarshal([]byte(line), &all); err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	for depth := 0; ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if delim, ok := token.(json.Delim); ok {
			if depth++; delim != '{' && (delim != '}' || depth != 2) {
				return nil, fmt.Errorf("a group or a list")
			}
			continue
		}
		name, _ := token.(string)
		value, err := d.Token()
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, [2]string{name, fmt.Sprint(value)})
	}
	if len(attrs) != len(all) {
		return nil, fmt.Errorf("an attribute comes twice: %v", slices.Collect(maps.Keys(all)))
	}
	return attrs, nil
}
