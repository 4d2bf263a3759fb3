package yamltree_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// jsonTexts are JSON, in the manner of the cases y_… of JSONTestSuite.
var jsonTexts = []string{
	`[]`, `[[]   ]`, `{}`, `[ ]`, `{ }`, `[""]`, `["a"]`, `[false]`, `[null, 1, "1", {}]`, `[null]`, "[1\n]", ` [1]`, `[1,null,null,null,2]`, `[2] `,
	`[123e65]`, `[0e+1]`, `[0e1]`, `[ 4]`, `[-0.000000000000000000000000000000000000000000000000000000000000000000000000000000001]`, `[20e1]`, `[-0]`, `[-123]`,
	`[-1]`, `[1E22]`, `[1E-2]`, `[1E+2]`, `[123e45]`, `[123.456e78]`, `[1e-2]`, `[1e+2]`, `[123]`, `[123.456789]`,
	`{"asd":"sdf", "dfg":"fgh"}`, `{"asd":"sdf"}`, `{"":0}`, `{"foo\u0000bar": 42}`, `{ "min": -1.0e+28, "max": 1.0e+28 }`, `{"x":[{"id": "x"}], "id": "x"}`,
	`{"title":"\u041f\u043e\u043b\u0442\u043e\u0440\u0430" }`, "{\n\"a\": \"b\"\n}", "{\n\t\"a\"\n\t:\n\t[\n\t]\n}",
	`["\u0060\u012a\u12AB"]`, `["\uD801\udc37"]`, `["\ud83d\ude39\ud83d\udc8d"]`, `["\"\\\/\b\f\n\r\t"]`, `["\\u0000"]`, `["\""]`, `["a/*b*/c/*d//e"]`, `["\\a"]`, `["\\n"]`,
	`["\u0012"]`, `["\uFFFF"]`, "[\"\U0010ffff\"]", "[\"\uffff\"]", `["\u0000"]`, `["\u002c"]`, "[\"π\"]", "[\"\u2028\"]", "[\"\u2029\"]", "[\"\x7f\"]", "[\"€𝄞\"]", "[\"a\x7fa\"]", `[" "]`, `[","]`, `["]"]`, `["{a: b} # c"]`,
	`false`, `42`, `-0.1`, `null`, `"asd"`, `true`, `""`, "[\"a\"]\n", `[true]`, "\t[]", ` [] `, "\n\n[\n]\n\n",
}

// notTexts are neither JSON nor of our subset, in the manner of the cases n_….
var notTexts = []string{
	``, ` `, `[`, `]`, `{`, `}`, `[1`, `[1,`, `[1}`, `{]`, `[1,,2]`, `[,1]`, `["x",,]`, `[,]`, `["",`, `["x"`, `[x`, `["x", truth]]`, `[3[4]]`, `["a" "b"]`, `["a":1]`, `{"x", null}`, `{"x"::"b"}`, `{"a":"a" 123}`, `{"a"}`, `{:"b"}`,
	`{"a" b}`, `{"a":`, `{"a"`, `{"a":1,,}`, `{,}`, `{"a":"b"}/**/`, `{"a":"b"}#`, `[] x`, `[]]`, `{}}`, `"`, `["`, `["a`, `["\`, `["\"`, `["\u`, `["\u00A"]`, `["\uD834\uDd"]`, `["\uD800\"]`, `["\uD800\u1"]`, `["\ud800"]`, `["\x00"]`, `["\a"]`, `["\v"]`,
	"[\"\x00\"]", "[\"new\nline\"]", "[\"\t\"]", "[\xff]", "[\"\xe9\"]", "\xef\xbb\xbf", "[\x0c]", "[1\x00]", "[\u2060]", "[\u00a0]", `[*]`, `[@]`, `[&a]`, `[!a]`, `{"a": 1, "a": 2}`, `[{]}`, `[` + "`" + `]`, strings.Repeat("[", 1000), strings.Repeat(`{"a":`, 1000),
}

func TestParseReadsJSON(t *testing.T) {
	for _, text := range jsonTexts {
		if want := ofJSON(t, text); want == "" {
			t.Errorf("%q: encoding/json does not read it", text)
		} else if root, faults := yamltree.Parse([]byte(text)); len(faults) > 0 || show(root) != want {
			t.Errorf("%q: got %s, want %s, faults %v", text, show(root), want, faults)
		}
	}
	for _, text := range notTexts {
		if root, faults := yamltree.Parse([]byte(text)); len(faults) == 0 {
			t.Errorf("%q: read as %s", text, show(root))
		}
	}
}

// ofJSON returns what show returns for text, by encoding/json. It returns "" if text is no JSON.
func ofJSON(t testing.TB, text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	shown, err := showNext(d)
	if err != nil {
		return ""
	}
	if _, err := d.Token(); err != io.EOF {
		return ""
	}
	return shown
}

func showNext(d *json.Decoder) (string, error) {
	token, err := d.Token()
	if err != nil {
		return "", err
	}
	var parts []string
	switch x := token.(type) {
	case json.Delim:
		for d.More() {
			part, err := showNext(d)
			if err != nil {
				return "", err
			}
			if x == '{' {
				value, err := showNext(d)
				if err != nil {
					return "", err
				}
				part += ": " + value
			}
			parts = append(parts, part)
		}
		end, err := d.Token()
		return fmt.Sprint(x, strings.Join(parts, ", "), end), err
	case string:
		return strconv.Quote(x), nil
	case nil:
		return "null", nil
	}
	return fmt.Sprint(token), nil
}

// Some JSON is not in the subset, for reasons that have nothing to do with YAML.
var halfPair = regexp.MustCompile(`(?i)\\ud[89a-f]`)

func isLeftOut(text []byte) bool {
	depth, deepest := 0, 0
	for _, c := range text { // also within texts: good enough
		if c == '[' || c == '{' {
			depth++
		} else if c == ']' || c == '}' {
			depth--
		}
		deepest = max(deepest, depth)
	}
	if trimmed := bytes.TrimSpace(text); deepest == 0 && !bytes.HasPrefix(text, trimmed) {
		return true // a tab before a scalar
	}
	return deepest > 20 || len(text) > yamltree.MaxBytes || !utf8.Valid(text) || halfPair.Match(text) || bytes.Contains(text, []byte("\ufeff")) || bytes.ContainsRune(bytes.ReplaceAll(text, []byte("\r\n"), nil), '\r')
}

// FuzzParse finds no panic, no fault without a line of the text, and no JSON that is read as anything else than what it is.
func FuzzParse(f *testing.F) {
	for _, text := range append(jsonTexts, notTexts...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root, faults := yamltree.Parse(text)
		if root == nil && len(faults) == 0 || len(faults) > 50 {
			t.Fatalf("no tree, and %d faults", len(faults))
		}
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, fault := range faults {
			if fault.Line < 1 || fault.Line > lines || fault.Column < 1 || fault.Column > len(text)+1 || fault.Text == "" {
				t.Errorf("fault %+v of %d lines", fault, lines)
			}
		}
		if root != nil {
			checkNodes(t, root, lines, len(faults) > 0)
		}
		if want := ofJSON(t, string(text)); want != "" && !isLeftOut(text) {
			named := len(faults) > 0 && (strings.HasPrefix(faults[0].Text, "is repeated") || strings.HasPrefix(faults[0].Text, "is a name of more"))
			if !named && (len(faults) > 0 || show(root) != want) {
				t.Errorf("JSON: got %s, want %s, faults %v", show(root), want, faults)
			}
		}
	})
}

// checkNodes checks that nodes have positions, and that there is nothing invalid without a fault.
func checkNodes(t *testing.T, n *yamltree.Node, lines int, faulty bool) {
	if n.Line < 1 || n.Line > lines || n.Column < 1 {
		t.Errorf("node %s at %d:%d", show(n), n.Line, n.Column)
	}
	if (n.Kind == yamltree.Invalid || n.Cut) && !faulty {
		t.Errorf("node %s at %d:%d is invalid or cut, without a fault", show(n), n.Line, n.Column)
	}
	for _, item := range n.Items {
		checkNodes(t, item, lines, faulty)
	}
	for _, field := range n.Fields {
		if field.Name.Kind != yamltree.Scalar {
			t.Errorf("name %s", show(field.Name))
		}
		checkNodes(t, field.Name, lines, faulty)
		checkNodes(t, field.Value, lines, faulty)
	}
}
