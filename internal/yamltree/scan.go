package yamltree

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A parser is at pos of text. Its methods that read a block leave it at the first character of the next line that has
// content, whose indentation is indent, or at the end.
type parser struct {
	text  string
	pos   int
	line  int
	start int // of the line

	counted, column int // the characters of the line before counted, to which they have been counted

	indent int // of the line
	end    bool
	parent int // the indentation of the block around a flow
	depth  int
	lost   int // lines and fields that had a fault
	faults []Fault
}

func (p *parser) at() (line, column int) {
	if p.counted < p.start {
		p.counted, p.column = p.start, 0
	}
	if p.counted > p.pos { // went back to read a key again
		p.counted, p.column = p.start, 0
	}
	p.column += utf8.RuneCountInString(p.text[p.counted:p.pos])
	p.counted = p.pos
	return p.line, p.column + 1
}

// fail notes a fault at the position, and returns false.
func (p *parser) fail(format string, args ...any) bool {
	line, column := p.at()
	return p.failAt(line, column, format, args...)
}

func (p *parser) failAt(line, column int, format string, args ...any) bool {
	p.lost++
	if len(p.faults) < maxFaults {
		p.faults = append(p.faults, Fault{line, column, fmt.Sprintf(format, args...)})
	}
	return false
}

func (p *parser) node(kind Kind) *Node {
	line, column := p.at()
	return &Node{Kind: kind, Line: line, Column: column}
}

// checkBytes reports whether all of the text may stand somewhere.
func (p *parser) checkBytes() bool {
	for p.pos < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[p.pos:])
		switch {
		case r == utf8.RuneError && size == 1:
			return p.fail("is not UTF-8: save the file as UTF-8")
		case r == '\r':
			return p.fail("has a carriage return without a line feed: end lines with a line feed")
		case r < ' ' && r != '\n' && r != '\t':
			return p.fail(`has the control character \x%02x: remove it, or write \u%04x in double quotes`, r, r)
		case r == '\ufeff':
			return p.fail("has a byte order mark after its beginning: remove it")
		}
		p.pos += size
		if r == '\n' {
			p.line, p.start = p.line+1, p.pos
		}
	}
	return true
}

// next goes to the next line that has content. The rest of this one is blank or a comment, or is skipped.
func (p *parser) next() {
	p.toLineEnd()
	p.content()
}

// content goes to the first character that is content, from the beginning of a line or its end.
func (p *parser) content() {
	for p.pos < len(p.text) {
		if p.text[p.pos] == '\n' {
			p.newLine()
		}
		p.indent = p.count(" ")
		p.pos += p.indent
		tabs := p.count(" \t")
		switch p.byteAt(p.pos + tabs) {
		case '\n', 0:
			p.pos += tabs
		case '#':
			p.toLineEnd()
		default:
			if flow := strings.IndexByte("[{", p.byteAt(p.pos+tabs)) >= 0; flow && p.depth == 0 {
				p.pos += tabs // as JSON may begin
			} else if tabs > 0 {
				p.fail("has a tab in its indentation: must be spaces")
				p.toLineEnd()
				continue
			}
			if p.indent == 0 && p.line > 1 && p.depth > 0 && (p.isMarker("---") || p.isMarker("...")) {
				p.fail("begins another document: must be one document, without --- after its beginning and without ...")
				p.pos = len(p.text)
			}
			p.end = p.pos >= len(p.text)
			return
		}
	}
	p.end, p.indent = true, 0
}

func (p *parser) newLine() {
	p.pos++
	p.line, p.start = p.line+1, p.pos
}

func (p *parser) toLineEnd() {
	if n := strings.IndexByte(p.text[p.pos:], '\n'); n >= 0 {
		p.pos += n
	} else {
		p.pos = len(p.text)
	}
}

// skip goes to the next line that is not indented deeper than n, and closes no flow.
func (p *parser) skip(n int) {
	for !p.end {
		p.next()
		if c := p.peek(); !p.end && p.indent <= n && c != ']' && c != '}' {
			return
		}
	}
}

func (p *parser) byteAt(i int) byte {
	if i < len(p.text) {
		return p.text[i]
	}
	return 0
}

func (p *parser) peek() byte { return p.byteAt(p.pos) }

// count returns how many of the next bytes are in set.
func (p *parser) count(set string) int {
	rest := p.text[p.pos:]
	return len(rest) - len(strings.TrimLeft(rest, set))
}

func (p *parser) blanks() int {
	n := p.count(" \t")
	p.pos += n
	return n
}

// spaceAt reports whether a blank, a line end or the end of the text is at i.
func (p *parser) spaceAt(i int) bool {
	c := p.byteAt(i)
	return c == 0 || c == ' ' || c == '\t' || c == '\n'
}

func (p *parser) isMarker(marker string) bool {
	return strings.HasPrefix(p.text[p.pos:], marker) && p.spaceAt(p.pos+len(marker))
}

func (p *parser) isDash() bool { return p.isMarker("-") }

func (p *parser) isColon() bool { return p.isMarker(":") }

// endLine reports whether nothing but a comment follows in the line.
func (p *parser) endLine(where string) bool {
	p.blanks()
	switch c := p.peek(); {
	case c == 0, c == '\n':
		return true
	case c == '#' && p.spaceAt(p.pos-1):
		p.toLineEnd()
		return true
	case c == '#':
		return p.fail("has no space before the comment: put one before #")
	}
	return p.fail("has text %s: must be the end of the line; put a text in quotes if this belongs to it", where)
}

// isBlankRest reports whether nothing but blanks and a comment follows in the line.
func (p *parser) isBlankRest() bool {
	n := p.count(" \t")
	c := p.byteAt(p.pos + n)
	return c == 0 || c == '\n' || c == '#' && n > 0
}
