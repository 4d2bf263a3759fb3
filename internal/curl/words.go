package curl

import (
	"errors"
	"strings"
	"unicode/utf8"
)

var (
	errCmd        = errors.New(`the line is quoted for cmd.exe, with ^: in the browser, choose "Copy as cURL (bash)"`)
	errPowerShell = errors.New(`the line is continued for PowerShell, with a backquote: in the browser, choose "Copy as cURL (bash)", or write the command on one line`)
	errUnclosed   = errors.New("a quote is not closed: paste the whole command")
)

// words splits text as a POSIX shell does, and expands nothing: $( ), ` and * are text. rest is what follows the command,
// such as "| jq .". A line break without a backslash is a space, because some programs lose the backslash.
func words(text string) (list []string, rest string, err error) {
	s := scanner{text: text}
	for {
		s.skipSpace()
		if s.at == len(s.text) {
			return list, "", nil
		}
		if s.endsCommand() {
			return list, s.text[s.at:], nil
		}
		word, err := s.word()
		if err != nil {
			return nil, "", err
		}
		list = append(list, word)
	}
}

type scanner struct {
	text string
	at   int
}

func (s *scanner) left() string { return s.text[s.at:] }

// continuation returns the length of a backslash and the line break after it.
func (s *scanner) continuation() int {
	for _, c := range []string{"\\\r\n", "\\\n"} {
		if strings.HasPrefix(s.left(), c) {
			return len(c)
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (s *scanner) skipSpace() {
	for s.at < len(s.text) {
		if n := s.continuation(); n > 0 {
			s.at += n
		} else if isSpace(s.text[s.at]) {
			s.at++
		} else {
			return
		}
	}
}

// endsCommand reports whether a pipe, a redirection, a comment or another command begins here. In the middle of a word
// these characters are text: people forget to quote the & of an address.
func (s *scanner) endsCommand() bool {
	switch s.text[s.at] {
	case '|', ';', '&', '<', '>', '#':
		return true
	case '1', '2':
		return strings.HasPrefix(s.left()[1:], ">")
	}
	return false
}

func (s *scanner) word() (string, error) {
	var word strings.Builder
	for s.at < len(s.text) {
		if n := s.continuation(); n > 0 {
			s.at += n
			continue
		}
		c := s.text[s.at]
		var err error
		switch {
		case isSpace(c), (c == ';' || c == '|') && s.at+1 < len(s.text) && isSpace(s.text[s.at+1]):
			return word.String(), nil
		case c == '^' && (s.at+1 == len(s.text) || strings.IndexByte("\"^\r\n", s.text[s.at+1]) >= 0):
			return "", errCmd
		case c == '`' && word.Len() == 0 && strings.HasPrefix(strings.TrimLeft(s.left()[1:], "\r"), "\n"):
			return "", errPowerShell
		case c == '\'':
			s.at++
			err = s.single(&word)
		case c == '"', strings.HasPrefix(s.left(), `$"`):
			s.at += strings.IndexByte(s.left(), '"') + 1
			err = s.double(&word)
		case strings.HasPrefix(s.left(), "$'"):
			s.at += 2
			err = s.ansiC(&word)
		case c == '\\':
			s.at++
			if s.at < len(s.text) {
				word.WriteByte(s.text[s.at])
				s.at++
			}
		default:
			word.WriteByte(c)
			s.at++
		}
		if err != nil {
			return "", err
		}
	}
	return word.String(), nil
}

func (s *scanner) single(word *strings.Builder) error {
	end := strings.IndexByte(s.left(), '\'')
	if end < 0 {
		return errUnclosed
	}
	word.WriteString(s.left()[:end])
	s.at += end + 1
	return nil
}

func (s *scanner) double(word *strings.Builder) error {
	for s.at < len(s.text) {
		if n := s.continuation(); n > 0 {
			s.at += n
			continue
		}
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return nil
		case c == '\\' && s.at < len(s.text) && strings.IndexByte("$`\"\\", s.text[s.at]) >= 0:
			word.WriteByte(s.text[s.at])
			s.at++
		default:
			word.WriteByte(c)
		}
	}
	return errUnclosed
}

var escapes = map[byte]byte{'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': '\n', 'r': '\r', 't': '\t', 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?'}

// ansiC reads the rest of $'…', which browsers write for texts with ' or ! in them.
func (s *scanner) ansiC(word *strings.Builder) error {
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		if c == '\'' {
			return nil
		}
		if c != '\\' || s.at == len(s.text) {
			word.WriteByte(c)
			continue
		}
		c = s.text[s.at]
		s.at++
		switch plain, known := escapes[c]; {
		case known:
			word.WriteByte(plain)
		case c == 'x':
			s.code(word, 16, 2, false, `\x`)
		case c == 'u':
			s.code(word, 16, 4, true, `\u`)
		case c == 'U':
			s.code(word, 16, 8, true, `\U`)
		case c == 'c' && s.at < len(s.text):
			word.WriteByte(s.text[s.at] & 0x1f)
			s.at++
		case '0' <= c && c <= '7':
			s.at--
			s.code(word, 8, 3, false, "")
		default:
			word.WriteByte('\\')
			word.WriteByte(c)
		}
	}
	return errUnclosed
}

// code reads up to most digits of a character or a byte. Without digits, the escape is text.
func (s *scanner) code(word *strings.Builder, base, most int, char bool, escape string) {
	value, n := 0, 0
	for ; n < most && s.at < len(s.text); n++ {
		d := strings.IndexByte("0123456789abcdef0123456789ABCDEF", s.text[s.at])
		if d < 0 || d%16 >= base {
			break
		}
		value = value*base + d%16
		s.at++
	}
	switch {
	case n == 0:
		word.WriteString(escape)
	case !char:
		word.WriteByte(byte(value))
	case 0xd800 <= value && value < 0xe000: // half of a character: Firefox writes two, and bash encodes each
		word.Write([]byte{0xe0 | byte(value>>12), 0x80 | byte(value>>6)&0x3f, 0x80 | byte(value)&0x3f})
	case value > utf8.MaxRune:
		word.WriteRune(utf8.RuneError)
	default:
		word.WriteRune(rune(value))
	}
}
