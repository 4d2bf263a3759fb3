package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// reported is the kind of a node that stands for a field whose fault is noted, so that it does not count as missing.
const reported yaml.Kind = 0

// isReported reports whether a node has a fault that is noted. It notes the parts of YAML that a file may not have.
func (r *reader) isReported(node *yaml.Node, path string) bool {
	switch {
	case node.Kind == reported:
		return true
	case node.Kind == yaml.AliasNode:
		r.fault(node, path, "is an alias: write the value that it stands for, or in quotes if it is a text")
	case node.Anchor != "":
		r.fault(node, path, "is an anchor: write the value where it is needed, or in quotes if it is a text")
	case node.Style&yaml.TaggedStyle != 0, node.Tag == "!":
		r.fault(node, path, "is a tag: remove it, or put the text in quotes")
	default:
		return false
	}
	return true
}

// fields returns the fields of a mapping, and notes those that are not in names. It returns nil if node is none.
func (r *reader) fields(node *yaml.Node, path string, names []string) map[string]*yaml.Node {
	if r.isReported(node, path) {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		if r.fieldWithoutSpace(node, path, names) == "" {
			r.fault(node, path, "must have fields: %s", strings.Join(names, ", "))
		}
		return nil
	}
	values := make(map[string]*yaml.Node)
	lines := make(map[string]int)
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		at := within(path, shownField(name.Value))
		switch {
		case r.isReported(name, path):
		case name.Kind != yaml.ScalarNode:
			r.fault(name, path, "is a name that is a list or a mapping: must be a text")
		case lines[name.Value] > 0:
			r.fault(name, at, "is repeated: line %d has the field already: must stand once", lines[name.Value])
		case slices.Contains(names, name.Value):
			values[name.Value] = value
		default:
			if field := r.fieldWithoutSpace(name, path, names); field != "" {
				values[field] = &yaml.Node{Kind: reported, Line: name.Line, Column: name.Column}
			} else {
				r.fault(name, at, "unknown field: %s", known(name.Value, names))
			}
		}
		lines[name.Value] = name.Line
	}
	return values
}

// fieldWithoutSpace notes a text such as limit:1/s, and returns the name of the field that is meant, "" if none is.
func (r *reader) fieldWithoutSpace(node *yaml.Node, path string, names []string) string {
	name, value, colon := strings.Cut(node.Value, ":")
	if !colon || !isPlain(node) || !slices.Contains(names, name) {
		return ""
	}
	r.fault(node, path, "%s: must have a space after the colon, as in %s: %s", quote(node.Value), name, shownField(value))
	return name
}

// isPlain reports whether a node is a text without quotes.
func isPlain(node *yaml.Node) bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return node.Kind == yaml.ScalarNode && node.Style&quoted == 0
}

func within(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// shownField returns the name of a field that a file made up.
func shownField(name string) string {
	quoted := quote(name)
	return quoted[1 : len(quoted)-1]
}

// text returns the text of a scalar that has a value.
func (r *reader) text(node *yaml.Node, path string) (string, bool) {
	switch {
	case r.isReported(node, path):
	case node.Kind != yaml.ScalarNode:
		r.fault(node, path, "must be a text, not a list or a mapping")
	case node.Tag == "!!null":
		r.fault(node, path, "has no value: set it or remove the field")
	default:
		return node.Value, true
	}
	return "", false
}

// items returns the items of a sequence, and notes that there are none with empty, unless that is "".
func (r *reader) items(node *yaml.Node, path, want, empty string) []*yaml.Node {
	switch {
	case r.isReported(node, path):
	case node.Kind != yaml.SequenceNode:
		r.fault(node, path, "must be %s", want)
	case len(node.Content) == 0 && empty != "":
		r.fault(node, path, "%s", empty)
	default:
		return node.Content
	}
	return nil
}

// each calls f with the items of a sequence that are texts, and with their paths.
func (r *reader) each(node *yaml.Node, path, want, empty string, f func(item *yaml.Node, at, text string)) {
	for i, item := range r.items(node, path, want, empty) {
		at := fmt.Sprintf("%s[%d]", path, i)
		if text, ok := r.text(item, at); ok {
			f(item, at, text)
		}
	}
}

func (r *reader) flag(node *yaml.Node, path string) bool {
	text, ok := r.text(node, path)
	if ok && text != "true" && text != "false" {
		r.fault(node, path, "%s: must be true or false", quote(text))
	}
	return text == "true"
}

func (r *reader) number(node *yaml.Node, path string) int {
	text, ok := r.text(node, path)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // n is then the nearest one, and the check of the field says its range
		r.fault(node, path, "%s: must be a whole number", quote(text))
	}
	return int(n)
}

func (r *reader) duration(node *yaml.Node, path string) time.Duration {
	text, ok := r.text(node, path)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		r.fault(node, path, "%s: must be a duration, such as 500ms, 15m or 24h", quote(text))
	}
	return d
}
