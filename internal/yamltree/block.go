package yamltree

func (p *parser) document() *Node {
	p.content()
	if !p.end && p.isMarker("---") && p.indent == 0 {
		p.pos += len("---")
		if !p.endLine("after ---") {
			return nil
		}
		p.next()
	}
	if p.end {
		p.fail("is empty: must begin with a field, such as version: 1")
		return nil
	}
	if p.indent == 0 && (p.isMarker("---") || p.isMarker("...")) {
		p.fail("begins another document: must be one document, without --- after its beginning and without ...")
		return nil
	}
	root := p.block(-1)
	if !p.end {
		p.fail("must be indented like the first line of the file, or belongs to no field")
		if root.Kind != Scalar {
			root.Cut = true
		}
	}
	return root
}

// block reads the block at the position. parent is the indentation of the block around it.
func (p *parser) block(parent int) *Node {
	if p.depth++; p.depth > maxNesting+1 {
		node := p.node(Invalid)
		p.fail("is nested deeper than %d levels: must have fewer brackets, dashes and fields around it", maxNesting)
		p.depth--
		p.skip(parent)
		return node
	}
	defer func() { p.depth-- }()
	n := p.pos - p.start
	if p.isDash() {
		return p.blockSequence(n)
	}
	before := p.pos
	node, ok := p.value(parent, false)
	if ok {
		p.blanks()
		if p.isColon() && node.Kind == Scalar {
			p.pos = before
			return p.blockMapping(n)
		}
		ok = p.endOf(node)
	}
	if !ok {
		node = &Node{Line: node.Line, Column: node.Column}
		p.skip(parent)
		return node
	}
	p.next()
	return node
}

// endOf reports whether the line ends after the value node.
func (p *parser) endOf(node *Node) bool {
	if p.isColon() && node.Kind != Scalar {
		return p.fail("has a name that is a list or a mapping: must be a text")
	}
	if p.peek() == ':' && node.Kind == Scalar && !node.Plain {
		return p.fail("has no space after the colon: write one")
	}
	return p.endLine("after a value")
}

func (p *parser) blockSequence(n int) *Node {
	s := p.node(Sequence)
	for {
		lost := p.lost
		item := p.node(Invalid)
		p.pos++ // the dash
		switch tabs := p.count(" \t") - p.count(" "); {
		case p.isBlankRest():
			p.endLine("")
			p.next()
			if !p.end && p.indent > n {
				item = p.block(n)
			} else {
				p.failAt(item.Line, item.Column, "is a dash without a value: must have one, such as - value")
			}
		case tabs > 0:
			p.fail("has a tab after the dash: must be a space")
			p.skip(n)
		default:
			p.blanks()
			item = p.block(n)
		}
		s.Items = append(s.Items, item)
		if !p.end && p.indent > n {
			p.failIndent(n)
			p.skip(n)
		}
		s.Cut = s.Cut || p.lost > lost
		if p.end || p.indent < n || !p.isDash() {
			return s
		}
	}
}

func (p *parser) failIndent(n int) {
	p.fail("is indented by %d: must be indented by %d like the line that it stands beside; a text must stand on one line", p.indent, n)
}

func (p *parser) blockMapping(n int) *Node {
	m := p.node(Mapping)
	for {
		lost := p.lost
		if !p.blockField(m, n) {
			p.skip(n)
		}
		if !p.end && p.indent > n {
			p.failIndent(n)
			p.skip(n)
		}
		m.Cut = m.Cut || p.lost > lost
		if p.end || p.indent < n {
			return m
		}
	}
}

// blockField reads a field of m. If it returns false, the rest of the field is to be skipped.
func (p *parser) blockField(m *Node, n int) bool {
	if p.isDash() {
		return p.fail("begins with a dash: must be a field, name: value, like the lines around it")
	}
	name, ok := p.value(n, false)
	if !ok {
		return false
	}
	p.blanks()
	if !p.isColon() {
		if p.peek() == ':' {
			return p.fail("has no space after the colon: write one")
		}
		return p.failAt(name.Line, name.Column, "is no field: must be name: value, with a space after the colon")
	}
	if !p.isName(name) {
		return false
	}
	p.pos++ // the colon
	value := p.node(Scalar)
	value.Plain = true
	switch {
	case p.isBlankRest():
		p.endLine("")
		p.next()
		if !p.end && (p.indent > n || p.indent == n && p.isDash()) {
			value = p.block(n)
		}
		p.put(m, name, value)
		return true
	default:
		p.blanks()
		if p.isDash() {
			p.fail("has a list on the line of its name: must begin on the next line, or be written in [ ]")
			ok = false
			break
		}
		value, ok = p.value(n, false)
		p.blanks()
		if ok && p.isColon() {
			ok = p.fail("has a second colon: put the text in quotes, or write the mapping on the next lines or in { }")
		}
		ok = ok && p.endLine("after a value")
	}
	if !ok {
		value = &Node{Line: value.Line, Column: value.Column}
	}
	p.put(m, name, value)
	if ok {
		p.next()
	}
	return ok
}

// isName reports whether node can be the name of a field.
func (p *parser) isName(node *Node) bool {
	switch {
	case node.Kind != Scalar:
		return p.failAt(node.Line, node.Column, "is a name that is a list or a mapping: must be a text")
	case node.Plain && node.Text == "<<":
		return p.failAt(node.Line, node.Column, "is a merge key: must be the fields themselves")
	case len(node.Text) > maxName: // YAML does not allow more than 1,024 characters
		return p.failAt(node.Line, node.Column, "is a name of more than %d bytes: must be shorter", maxName)
	}
	return true
}

// put adds a field to m, unless m has it.
func (p *parser) put(m, name, value *Node) {
	if first := m.Field(name.Text); first != nil {
		p.failAt(name.Line, name.Column, "is repeated: line %d has the field already: must stand once", first.Name.Line)
		return
	}
	m.add(Field{name, value})
}
