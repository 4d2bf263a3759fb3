package yamltree

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// value reads a scalar or a flow. parent is the indentation of the block around it, or -1.
func (p *parser) value(parent int, inFlow bool) (*Node, bool) {
	node := p.node(Invalid)
	switch c := p.peek(); c {
	case '{', '[':
		if !inFlow {
			p.parent = parent
		}
		return p.flow()
	case '"':
		return p.doubleQuoted()
	case '\'':
		return p.singleQuoted()
	case '&':
		return node, p.fail("is an anchor: write the value where it is needed, or in quotes if it is a text")
	case '*':
		return node, p.fail("is an alias: write the value that it stands for, or in quotes if it is a text")
	case '!':
		return node, p.fail("is a tag: remove it, or put the text in quotes")
	case '|', '>':
		return node, p.fail("is a text of several lines: write it on one line, in quotes")
	case '%':
		return node, p.fail("is a directive: remove it, or put the text in quotes")
	case '@', '`', '#', ',', ']', '}':
		return node, p.fail("begins with %q: must be in quotes if it is a text", c)
	case '?', ':', '-':
		if p.spaceAt(p.pos+1) || inFlow && isFlowByte(p.byteAt(p.pos+1)) {
			if c == '?' {
				return node, p.fail("is a complex key: must be name: value")
			}
			return node, p.fail("has %q without a value or a name: must be in quotes if it is a text", c)
		}
		if c != '-' {
			return node, p.fail("begins with %q: must be in quotes", c)
		}
	}
	return p.plain(inFlow)
}

func isFlowByte(c byte) bool { return c != 0 && strings.IndexByte(",[]{}", c) >= 0 }

func (p *parser) plain(inFlow bool) (*Node, bool) {
	node := p.node(Scalar)
	node.Plain = true
	i := p.pos
scan:
	for ; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '\n':
			break scan
		case c == '#' && p.spaceAt(i-1):
			break scan
		case c == ':' && (p.spaceAt(i+1) || inFlow && isFlowByte(p.byteAt(i+1))):
			break scan
		case inFlow && isFlowByte(c):
			break scan
		}
	}
	node.Text = strings.TrimRight(p.text[p.pos:i], " \t")
	if !p.printable(node.Text) {
		return node, false
	}
	p.pos += len(node.Text)
	return node, true
}

// printable reports whether text, which is at the position, may stand there outside of double quotes.
func (p *parser) printable(text string) bool {
	for i, r := range text {
		if !strconv.IsPrint(r) {
			p.pos += i
			return p.fail(`has the character U+%04X in a text: put the text in double quotes and write \u%04x`, r, min(r, 0xffff))
		}
	}
	return true
}

func (p *parser) singleQuoted() (*Node, bool) {
	node := p.node(Scalar)
	rest := p.text[p.pos+1:]
	if n := strings.IndexByte(rest, '\n'); n >= 0 {
		rest = rest[:n]
	}
	end := 0
	for end < len(rest) && (rest[end] != '\'' || strings.HasPrefix(rest[end:], "''")) {
		if rest[end] == '\'' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return node, p.fail("has no closing ' on its line: a text must stand on one line")
	}
	p.pos++
	if !p.printable(rest[:end]) {
		return node, false
	}
	p.pos += end + 1
	node.Text = strings.ReplaceAll(rest[:end], "''", "'")
	return node, true
}

// escapes are those of JSON, except for \u.
var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (p *parser) doubleQuoted() (*Node, bool) {
	node := p.node(Scalar)
	var text strings.Builder
	for i := p.pos + 1; ; i++ {
		switch c := p.byteAt(i); c {
		case 0, '\n':
			return node, p.fail(`has no closing " on its line: a text must stand on one line`)
		case '"':
			p.pos = i + 1
			node.Text = text.String()
			return node, true
		case '\t':
			p.pos = i
			return node, p.fail(`has a tab in a text: write \t`)
		case '\\':
			if plain, ok := escapes[p.byteAt(i+1)]; ok {
				text.WriteByte(plain)
				i++
				continue
			}
			r, size := unescape(p.text[i:])
			if size == 0 {
				p.pos = i
				return node, p.fail(`has an escape that JSON does not have: must be one of \" \\ \/ \b \f \n \r \t or \u and four hexadecimal digits, which are no half of a pair`)
			}
			text.WriteRune(r)
			i += size - 1
		default:
			text.WriteByte(c)
		}
	}
}

// unescape returns the character that an escape with \u at the beginning of text stands for, and the length of the escape,
// which is 0 if it is malformed.
func unescape(text string) (r rune, size int) {
	r, ok := hex4(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, _ := hex4(text[6:])
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func hex4(text string) (rune, bool) {
	if len(text) < 6 || text[:2] != `\u` || strings.Trim(text[2:6], "0123456789abcdefABCDEF") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:6], 16, 32)
	return rune(n), err == nil
}
