package yamltree

// flow reads a mapping in { } or a sequence in [ ].
func (p *parser) flow() (*Node, bool) {
	node, closing, kind := p.node(Sequence), byte(']'), "list"
	if p.peek() == '{' {
		node.Kind, closing, kind = Mapping, '}', "mapping"
	}
	if p.depth++; p.depth > maxNesting+1 {
		p.depth--
		return node, p.fail("is nested deeper than %d levels: must have fewer brackets, dashes and fields around it", maxNesting)
	}
	defer func() { p.depth-- }()
	lost := p.lost
	p.pos++
	for {
		if !p.gap() {
			return node, false
		}
		switch p.peek() {
		case 0:
			return node, p.failAt(node.Line, node.Column, "is a %s without an end: must end with %c", kind, closing)
		case closing:
			p.pos++
			node.Cut = p.lost > lost
			return node, true
		}
		if node.Kind == Mapping {
			if !p.flowField(node) {
				return node, false
			}
		} else {
			item, ok := p.value(0, true)
			if !ok {
				return node, false
			}
			node.Items = append(node.Items, item)
		}
		line := p.line
		if !p.gap() {
			return node, false
		}
		switch c := p.peek(); {
		case c == ',':
			p.pos++
		case c == closing, c == 0:
		case c == ':' && node.Kind == Sequence:
			return node, p.fail("has a field in a list: write it in { }, or put the text in quotes")
		case c == '{' || c == '[' || c == ']' || c == '}':
			return node, p.fail("has %q in a %s: must be a comma or %c; put a text with %c in quotes", c, kind, closing, c)
		case p.line != line:
			return node, p.fail("must be a comma or %c; a text must stand on one line", closing)
		default:
			return node, p.fail("must be a comma or %c", closing)
		}
	}
}

func (p *parser) flowField(m *Node) bool {
	name, ok := p.value(0, true)
	if !ok || !p.isName(name) {
		return false
	}
	p.blanks()
	if !name.Plain && !p.gap() { // as JSON has it
		return false
	}
	switch {
	case p.peek() != ':':
		return p.failAt(name.Line, name.Column, "is no field: must be name: value, with a space after the colon")
	case name.Plain && !p.isColon():
		return p.fail("has no space after the colon: write one")
	}
	p.pos++
	if !p.gap() {
		return false
	}
	value := p.node(Scalar)
	value.Plain = true
	if c := p.peek(); c != ',' && c != '}' && c != 0 {
		if value, ok = p.value(0, true); !ok {
			return false
		}
	}
	p.put(m, name, value)
	return true
}

// gap goes to the next character within a flow that is neither a blank nor in a comment. Lines must be indented deeper
// than the block around the flow, except for closing brackets.
func (p *parser) gap() bool {
	for {
		n := p.blanks()
		switch c := p.peek(); {
		case c == '#' && (n > 0 || p.pos == p.start):
			p.toLineEnd()
		case c == '\n':
			p.newLine()
			spaces := p.count(" ")
			c := p.byteAt(p.pos + p.count(" \t"))
			switch {
			case c == '\n' || c == 0 || c == '#':
			case spaces == 0 && (p.isMarker("---") || p.isMarker("...")):
				return p.fail("begins another document: must be one document")
			case p.parent >= 0 && spaces < p.count(" \t") && spaces <= p.parent:
				return p.fail("has a tab in its indentation: must be spaces")
			case spaces <= p.parent && !(spaces == p.parent && (c == ']' || c == '}')):
				p.pos += spaces
				return p.fail("is indented by %d: must be indented by more than %d, because it continues a list or mapping in brackets", spaces, p.parent)
			}
		default:
			return true
		}
	}
}
