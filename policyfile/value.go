package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// fields returns the fields of a mapping, and notes those that are not in names. It returns nil if node is none.
func (r *reader) fields(node *yamltree.Node, path string, names []string) (values map[string]*yamltree.Node) {
	if node.Kind == yamltree.Invalid {
		return nil
	}
	if node.Kind != yamltree.Mapping {
		if name, value, colon := strings.Cut(node.Text, ":"); colon && node.Plain && slices.Contains(names, name) {
			r.fault(node, path, "%s: must have a space after the colon, as in %s: %s", quote(node.Text), name, shownField(value))
			return nil
		}
		r.fault(node, path, "must have fields: %s", strings.Join(names, ", "))
		return nil
	}
	values = make(map[string]*yamltree.Node)
	for _, f := range node.Fields {
		if slices.Contains(names, f.Name.Text) {
			values[f.Name.Text] = f.Value
		} else {
			r.fault(f.Name, within(path, shownField(f.Name.Text)), "unknown field: %s", known(f.Name.Text, names))
		}
	}
	return values
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
func (r *reader) text(node *yamltree.Node, path string) (string, bool) {
	switch {
	case node.Kind == yamltree.Invalid:
		return "", false
	case node.Kind != yamltree.Scalar:
		r.fault(node, path, "must be a text, not a list or a mapping")
		return "", false
	case isNull(node):
		r.fault(node, path, "has no value: set it or remove the field")
		return "", false
	}
	return node.Text, true
}

func isNull(node *yamltree.Node) bool {
	return node.Kind == yamltree.Scalar && node.Plain && slices.Contains([]string{"", "~", "null", "Null", "NULL"}, node.Text)
}

// items returns the items of a sequence.
func (r *reader) items(node *yamltree.Node, path, want string) []*yamltree.Node {
	if node.Kind != yamltree.Sequence && node.Kind != yamltree.Invalid {
		r.fault(node, path, "must be %s", want)
	}
	return node.Items
}

// texts returns the texts of a sequence.
func (r *reader) texts(node *yamltree.Node, path, want string) (texts []string, nodes []*yamltree.Node) {
	for i, item := range r.items(node, path, want) {
		if text, ok := r.text(item, fmt.Sprintf("%s[%d]", path, i)); ok {
			texts, nodes = append(texts, text), append(nodes, item)
		}
	}
	return texts, nodes
}

func (r *reader) flag(node *yamltree.Node, path string) bool {
	text, ok := r.text(node, path)
	if ok && text != "true" && text != "false" {
		r.fault(node, path, "%s: must be true or false", quote(text))
	}
	return text == "true"
}

func (r *reader) number(node *yamltree.Node, path string) int {
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

func (r *reader) duration(node *yamltree.Node, path string) time.Duration {
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
