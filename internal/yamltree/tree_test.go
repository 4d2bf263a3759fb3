package yamltree_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// show returns a tree on one line. Texts that are not in quotes are shown without.
func show(n *yamltree.Node) string {
	if n == nil {
		return "nil"
	}
	var parts []string
	switch n.Kind {
	case yamltree.Sequence:
		for _, item := range n.Items {
			parts = append(parts, show(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yamltree.Mapping:
		for _, f := range n.Fields {
			parts = append(parts, show(f.Name)+": "+show(f.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yamltree.Scalar:
		if n.Plain {
			return n.Text
		}
		return strconv.Quote(n.Text)
	}
	return "!"
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a mapping", "a: 1\nb: x y # comment\n", "{a: 1, b: x y}"},
		{"a mapping in a mapping", "a:\n  b: 1\n  c:\n    d: 2\ne: 3\n", "{a: {b: 1, c: {d: 2}}, e: 3}"},
		{"a list", "- a\n- b\n", "[a, b]"},
		{"a list below a name", "a:\n  - b\n  - c\nd: 1\n", "{a: [b, c], d: 1}"},
		{"a list at the column of its name", "a:\n- b\n- c\nd: 1\n", "{a: [b, c], d: 1}"},
		{"mappings in a list", "- a: 1\n  b: 2\n-   a: 3\n    b: 4\n-\n  c: 5\n", "[{a: 1, b: 2}, {a: 3, b: 4}, {c: 5}]"},
		{"lists in a list", "- - a\n  - b\n-\n  - c\n", "[[a, b], [c]]"},
		{"a list in a mapping in a list", "- a:\n  - b\n  c: d\n", "[{a: [b], c: d}]"},
		{"no values", "a:\nb: # nothing\nc:\n", "{a: , b: , c: }"},
		{"plain texts", "a: 60/1m burst 10\nb: -1\nc: a#b\nd: a:b\ne: 1:30\nf: no\ng: GET /items/{id}\nh: it's\ni: a, b\n", "{a: 60/1m burst 10, b: -1, c: a#b, d: a:b, e: 1:30, f: no, g: GET /items/{id}, h: it's, i: a, b}"},
		{"quoted texts", `a: 'it''s: # {'` + "\n" + `b: "\"\\\/\b\f\n\r\t\u00e9\ud834\udd1e: #"` + "\n", "{a: \"it's: # {\", b: " + strconv.Quote("\"\\/\b\f\n\r\té𝄞: #") + "}"},
		{"empty texts", "a: ''\nb: \"\"\n", `{a: "", b: ""}`},
		{"quoted names", "'a b': 1\n\"c\": 2\n", `{"a b": 1, "c": 2}`},
		{"flows", "a: {b: 1, c: [2, 3], d: {}, e: []}\nf: [x, {y: z}, ]\n", "{a: {b: 1, c: [2, 3], d: {}, e: []}, f: [x, {y: z}]}"},
		{"a flow of several lines", "a: [\n  1, # one\n\n  2\n]\nb: {\n c: 3\n }\n", "{a: [1, 2], b: {c: 3}}"},
		{"no value in a flow", "{a: , b: }", "{a: , b: }"},
		{"colons in flows", "[a:b, 2001:db8::/32, c]", "[a:b, 2001:db8::/32, c]"},
		{"a beginning", "# comment\n\n---\n# comment\na: 1\n", "{a: 1}"},
		{"a byte order mark", "\ufeffa: 1\n", "{a: 1}"},
		{"ends of lines as in Windows", "a:\r\n  - b\r\nc: d\r\n", "{a: [b], c: d}"},
		{"no end of line", "a:\n  b: c", "{a: {b: c}}"},
		{"comments at any indentation", "a:\n    # one\n  b: 1\n# two\n  c: 2\n        # three\n", "{a: {b: 1, c: 2}}"},
		{"blank lines with tabs", "a: 1\n\t\n \t # comment\nb: 2\t# comment\n", "{a: 1, b: 2}"},
		{"JSON", "{\"a\":[1,true,null,\"x\"],\n\t\"b\"\n\t:\n\t{\"c\":-1.5e3}}\n", `{"a": [1, true, null, "x"], "b": {"c": -1.5e3}}`},
		{"JSON without blanks", `{"":{"a":""},"b":[[]]}`, `{"": {"a": ""}, "b": [[]]}`},
		{"twenty levels", strings.Repeat("[", 20) + strings.Repeat("]", 20), strings.Repeat("[", 20) + strings.Repeat("]", 20)},
		{"many fields", many(30), "{" + strings.TrimSuffix(strings.ReplaceAll(many(30), "\n", ", "), ", ") + "}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, faults := yamltree.Parse([]byte(tt.text))
			if len(faults) > 0 || show(root) != tt.want {
				t.Errorf("%q:\n got %s\nwant %s\nfaults %v", tt.text, show(root), tt.want, faults)
			}
		})
	}
}

func many(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "a%d: %d\n", i, i)
	}
	return text.String()
}

// What is refused has a line, a column and a remedy, and what stands beside it is read.
func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, faults, want string }{
		{"nothing", "", "1:1 is empty", "nil"},
		{"only comments", "# a\n", "2:1 is empty", "nil"},
		{"a tab in the indentation", "a:\n\tb: 1\n \tc: 1\nd: 2", "2:1 has a tab in its indentation: must be spaces; 3:2 has a tab", "{a: , d: 2}"},
		{"a tab in the indentation of a flow", "a: [\n\t1]\nb: 2", "2:1 has a tab in its indentation", "{a: !, b: 2}"},
		{"a tab after a dash", "-\ta\n- b", "1:2 has a tab after the dash: must be a space", "[!, b]"},
		{"a dash without a value", "a:\n- \n- b\n-", "2:1 is a dash without a value: must have one; 4:1 is a dash", "{a: [!, b, !]}"},
		{"an anchor", "a: &x 1\nb: 2", "1:4 is an anchor: write the value", "{a: !, b: 2}"},
		{"an alias", "a: *x\nb: [*y]\nc: 2", "1:4 is an alias: write the value; 2:5 is an alias", "{a: !, b: !, c: 2}"},
		{"an alias as a name", "*a : 1\nb: 2", "1:1 is an alias", "!"},
		{"a tag", "a: !!str 1\nb: 2", "1:4 is a tag: remove it", "{a: !, b: 2}"},
		{"a merge key", "<<: {a: 1}\nb: 2", "1:1 is a merge key: must be the fields themselves", "{b: 2}"},
		{"block scalars", "a: |\n  b\n  c\nd: >-\n  e\nf: 1", "1:4 is a text of several lines: write it on one line; 4:4 is a text of several", "{a: !, d: !, f: 1}"},
		{"a plain text of two lines", "a: b\n  c\nd: 1", "2:3 is indented by 2: must be indented by 0 like the line that it stands beside; a text must stand on one line", "{a: b, d: 1}"},
		{"a plain text of two lines in a flow", "a: [b\n  c]\nd: 1", "2:3 must be a comma or ]; a text must stand on one line", "{a: !, d: 1}"},
		{"a quoted text of two lines", "a: \"b\n  c\"\nd: 'e\n  f'\ng: 1", `1:4 has no closing " on its line: a text must stand on one line; 3:4 has no closing '`, "{a: !, d: !, g: 1}"},
		{"two documents", "a: 1\n---\nb: 2", "2:1 begins another document: must be one document", "{a: 1}"},
		{"two beginnings", "---\n---\nb: 2", "2:1 begins another document", "nil"},
		{"the end of a document", "a: 1\n...\n", "2:1 begins another document", "{a: 1}"},
		{"a document in a flow", "[a,\n---\n]", "2:1 begins another document", "!"},
		{"text after the beginning", "--- a: 1\n", "1:5 has text after ---", "nil"},
		{"a directive", "%YAML 1.2\n---\na: 1", "1:1 is a directive: remove it; 2:1 begins another document", "!"},
		{"a complex key", "? a\n: b\n", "1:1 is a complex key: must be name: value", "!"},
		{"a list as a name", "[a]: b\n", "1:4 has a name that is a list or a mapping: must be a text", "!"},
		{"a list as a name in a flow", "{[a]: b}\n", "1:2 is a name that is a list or a mapping: must be a text", "!"},
		{"a byte order mark in the middle", "a: 1\n\ufeffb: 2", "2:1 has a byte order mark after its beginning: remove it", "nil"},
		{"no UTF-8", "a: é\nb: é\xff", "2:5 is not UTF-8: save the file as UTF-8", "nil"},
		{"a control character", "a: 1\nb: \x1b[2J", `2:4 has the control character \x1b: remove it, or write \u001b in double quotes`, "nil"},
		{"a carriage return", "a: 1\rb: 2", "1:5 has a carriage return without a line feed", "nil"},
		{"a character that is not printed", "a: x\u202ey\nb: 'x\u200b'\nc: 1", `1:5 has the character U+202E in a text: put the text in double quotes and write \u202e; 2:6 has the character U+200B`, "{a: !, b: !, c: 1}"},
		{"more than 1 MiB", strings.Repeat("#", 1<<20+1), "1:1 has more than 1 MiB: must be shorter", "nil"},
		{"more than twenty levels", strings.Repeat("[", 21), "1:21 is nested deeper than 20 levels: must have fewer brackets", "!"},
		{"more than twenty levels of lists", strings.Repeat("- ", 30) + "a", "1:43 is nested deeper than 20 levels: must have fewer brackets", ""},
		{"a repeated name", "a: 1\nb: 2\na: 3", "3:1 is repeated: line 1 has the field already: must stand once", "{a: 1, b: 2}"},
		{"a repeated name in a flow", "{a: 1, 'a': 2}", "1:8 is repeated: line 1", "{a: 1}"},
		{"a repeated name among many", many(30) + "a29: 1", "31:1 is repeated: line 30", "{" + strings.TrimSuffix(strings.ReplaceAll(many(30), "\n", ", "), ", ") + "}"},
		{"a long name", "a: 1\n" + strings.Repeat("b", 257) + ": 1\nc: 2", "2:1 is a name of more than 256 bytes: must be shorter", "{a: 1, c: 2}"},
		{"an indentation that fits nothing", "a:\n    b: 1\n  c: 2\nd: 3", "3:3 is indented by 2: must be indented by 0", "{a: {b: 1}, d: 3}"},
		{"a first line that is indented", "  a: 1\nb: 2", "2:1 must be indented like the first line of the file", "{a: 1}"},
		{"a field beside a list", "a:\n  - b\n  c: 1\nd: 2", "3:3 is indented by 2", "{a: [b], d: 2}"},
		{"a dash beside fields", "a: 1\n- b\nc: 2", "2:1 begins with a dash: must be a field", "{a: 1, c: 2}"},
		{"a line without a colon", "a: 1\nbc\nd: 2", "2:1 is no field: must be name: value", "{a: 1, d: 2}"},
		{"no blank after the colon of a quoted name", "a: 1\n\"b\":2\nc: 3", "2:4 has no space after the colon: write one", "{a: 1, c: 3}"},
		{"no blank after the colon in a flow", "{a:1}", "1:2 is no field: must be name: value, with a space after the colon", "!"},
		{"no blank before a bracket in a flow", "{a:[1]}", "1:3 has no space after the colon: write one", "!"},
		{"two colons", "a: b: c\nd: 1", "1:5 has a second colon: put the text in quotes", "{a: !, d: 1}"},
		{"a list on the line of its name", "a: - b\nc: 1", "1:4 has a list on the line of its name: must begin on the next line, or be written in [ ]", "{a: !, c: 1}"},
		{"text after a quoted one", "a: \"b\" c\nd: 1", "1:8 has text after a value: must be the end of the line", "{a: !, d: 1}"},
		{"a comment without a blank", "a: [b]#c\nd: 1", "1:7 has no space before the comment: put one before #", "{a: !, d: 1}"},
		{"a pattern in a flow", "a: [GET /items/{id}]\nb: 1", "1:16 has '{' in a list: must be a comma or ]; put a text with { in quotes", "{a: !, b: 1}"},
		{"a field in a list", "a: [b: c]\nd: 1", "1:6 has a field in a list: write it in { }", "{a: !, d: 1}"},
		{"a flow without an end", "a: [b,\n  c\n", "1:4 is a list without an end: must end with ]", "{a: !}"},
		{"a flow that goes on too far left", "a:\n  b: {c: 1,\n  d: 2}\ne: 3", "3:3 is indented by 2: must be indented by more than 2", "{a: {b: !}, e: 3}"},
		{"a wrong bracket", "a: [b}\nc: 1", "1:6 has '}' in a list: must be a comma or ]", "{a: !, c: 1}"},
		{"two commas", "a: [b,,c]\nd: 1", `1:7 begins with ',': must be in quotes`, "{a: !, d: 1}"},
		{"reserved characters", "a: @b\nc: `d\ne: %f\ng: 1", "1:4 begins with '@': must be in quotes; 2:4 begins with '`'; 3:4 is a directive", "{a: !, c: !, e: !, g: 1}"},
		{"an address that begins with a colon", "a: ::1\nb: 1", "1:4 begins with ':': must be in quotes", "{a: !, b: 1}"},
		{"an escape of YAML", `a: "\x41"` + "\nb: 1", `1:5 has an escape that JSON does not have`, "{a: !, b: 1}"},
		{"half a pair", `a: "\ud834"` + "\nb: 1", `1:5 has an escape that JSON does not have`, "{a: !, b: 1}"},
		{"a tab in quotes", "a: \"b\tc\"\nd: 1", `1:6 has a tab in a text: write \t`, "{a: !, d: 1}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, faults := yamltree.Parse([]byte(tt.text))
			if tt.want != "" && show(root) != tt.want {
				t.Errorf("%.99q: got %s, want %s", tt.text, show(root), tt.want)
			}
			want := strings.Split(tt.faults, "; ")
			for i := 0; i < len(want); i++ { // a text may have a semicolon, too
				if i > 0 && (want[i][0] < '0' || want[i][0] > '9') {
					want[i-1] += "; " + want[i]
					want = append(want[:i], want[i+1:]...)
					i--
				}
			}
			for i, f := range faults {
				got := fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Text)
				if i >= len(want) || !strings.HasPrefix(got, want[i]) {
					t.Errorf("%.99q: fault %q, want %q", tt.text, got, want)
				}
			}
			if len(faults) != len(want) {
				t.Errorf("%.99q: %d faults, want %q", tt.text, len(faults), want)
			}
		})
	}
}

// No more than 50 faults are kept.
func TestParseBoundsFaults(t *testing.T) {
	if _, faults := yamltree.Parse([]byte(strings.Repeat("a: *b\n", 100))); len(faults) != 50 {
		t.Errorf("%d faults", len(faults))
	}
}
