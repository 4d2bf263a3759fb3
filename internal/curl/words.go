package curl

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// A word is one argument of a command.
type word struct {
	text string
	at   string // such as "line 1, column 6"
}

// words splits a line as bash does, and expands nothing: $( ), ` and * are text. If the command ends before the line does,
// such as at a pipe, rest is the place. Errors of the shell's syntax are not returned, because they may quote the line. A line
// break without a backslash is a space, because some programs lose the backslash.
func words(line string) (list []word, rest string, err error) {
	end := uint(0)
	for w, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).WordsSeq(strings.NewReader(line)) {
		if err == nil {
			end = w.End().Offset()
			list = append(list, word{textOf(line, w.Parts, false), place(w.Pos())})
			continue
		}
		var wrong syntax.ParseError
		if !errors.As(err, &wrong) {
			return nil, "", errors.New("the command cannot be read: paste it as text")
		}
		if wrong.Incomplete {
			return nil, "", fmt.Errorf("what begins at %s is not closed: paste the whole command", place(wrong.Pos))
		}
		if last := len(list) - 1; last >= 0 && end == wrong.Pos.Offset() && (list[last].text == "1" || list[last].text == "2") { // as in 2>/dev/null
			return list[:last], list[last].at, nil
		}
		return list, place(wrong.Pos), nil
	}
	return list, "", nil
}

func place(pos syntax.Pos) string { return fmt.Sprintf("line %d, column %d", pos.Line(), pos.Col()) }

// textOf returns the text of the parts of a word, without their quotes.
func textOf(line string, parts []syntax.WordPart, quoted bool) string {
	var text strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			text.WriteString(unescape(p.Value, quoted))
		case *syntax.DblQuoted:
			text.WriteString(textOf(line, p.Parts, true))
		case *syntax.SglQuoted:
			value := p.Value
			if p.Dollar { // $'…', which browsers write for texts with ' or ! in them
				value, _ = expand.Literal(nil, &syntax.Word{Parts: []syntax.WordPart{p}})
			}
			text.WriteString(value)
		default: // what a shell would expand
			text.WriteString(line[part.Pos().Offset():part.End().Offset()])
		}
	}
	return text.String()
}

// unescape removes the backslashes that quote the character behind them.
func unescape(text string, quoted bool) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (!quoted || strings.IndexByte("$`\"\\", text[i+1]) >= 0) {
			i++
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
