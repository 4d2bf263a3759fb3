// Package yamltree reads a strict subset of YAML, which contains JSON, into a tree that has the line and column of each
// node.
//
// The subset has mappings and sequences in block and flow form, plain, 'single' and "double" quoted scalars that stand on
// one line, comments, and one "---" at the beginning. All scalars are text: whoever reads the tree decides what they mean.
// Everything else is refused with a fault that says what to write instead.
package yamltree

import (
	"slices"
	"strings"
)

// A Kind is what a [Node] is.
type Kind int

// The kinds of a [Node].
const (
	Invalid Kind = iota // had a fault, which Parse has returned
	Scalar
	Sequence
	Mapping
)

// A Node is a value and its position.
type Node struct {
	Kind         Kind
	Line, Column int     // from 1, the column in characters
	Text         string  // of a Scalar
	Plain        bool    // of a Scalar: it is not in quotes. If Text is empty, there is no value.
	Items        []*Node // of a Sequence
	Fields       []Field // of a Mapping
	Cut          bool    // of a Sequence or Mapping: a part is missing, because it had a fault

	names map[string]int // the indexes of Fields, if there are many
}

// Field returns the field of a Mapping with that name, nil if it has none.
func (n *Node) Field(name string) *Field {
	i := -1
	if n.names == nil {
		i = slices.IndexFunc(n.Fields, func(f Field) bool { return f.Name.Text == name })
	} else if at, ok := n.names[name]; ok {
		i = at
	}
	if i < 0 {
		return nil
	}
	return &n.Fields[i]
}

// add adds a field that n does not have.
func (n *Node) add(f Field) {
	n.Fields = append(n.Fields, f)
	switch {
	case n.names != nil:
		n.names[f.Name.Text] = len(n.Fields) - 1
	case len(n.Fields) > 20:
		n.names = make(map[string]int)
		for i, f := range n.Fields {
			n.names[f.Name.Text] = i
		}
	}
}

// A Field is a name and its value in a mapping. Names of a mapping differ, except from those with a fault.
type Field struct{ Name, Value *Node }

// A Fault is a part of the text that is not in the subset.
type Fault struct {
	Line, Column int
	Text         string
}

// Bounds of a text.
const (
	MaxBytes   = 1 << 20
	maxNesting = 20
	maxFaults  = 50
	maxName    = 256
)

// Parse returns the tree of text, and what is wrong with it, at most 50 faults. With faults, the tree has the parts that
// could be read, or is nil.
func Parse(text []byte) (*Node, []Fault) {
	p := &parser{text: strings.TrimPrefix(string(text), "\ufeff"), line: 1}
	if len(text) > MaxBytes {
		p.fail("has more than 1 MiB: must be shorter")
		return nil, p.faults
	}
	p.text = strings.ReplaceAll(p.text, "\r\n", "\n")
	if !p.checkBytes() {
		return nil, p.faults
	}
	*p = parser{text: p.text, line: 1, faults: p.faults, parent: -1}
	root := p.document()
	return root, p.faults
}
