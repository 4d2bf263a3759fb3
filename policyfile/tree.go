package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Bounds of a text. Reading one that has less takes below a second.
const (
	maxBytes   = 1 << 20
	maxParts   = 50_000 // lines, commas and brackets, between which all nodes stand
	maxNesting = 20
)

var start = &yaml.Node{Line: 1, Column: 1}

// tree returns the tree of text, or nil if text is not one document of YAML, or of JSON where the name of the file says so.
func (r *reader) tree(text []byte) *yaml.Node {
	if len(text) > maxBytes {
		r.fault(start, "", "has more than 1 MiB: must be shorter")
		return nil
	}
	parts := 0
	for _, sign := range []string{"\n", ",", "[", "{"} {
		parts += bytes.Count(text, []byte(sign))
	}
	if parts > maxParts {
		r.fault(start, "", "has more than %d lines, commas and opening brackets: must have fewer", maxParts)
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	r.end = position(text, len(text))
	if strings.HasSuffix(strings.ToLower(r.file.name), ".json") {
		var value json.RawMessage
		var syntax *json.SyntaxError
		if errors.As(json.Unmarshal(text, &value), &syntax) {
			r.fault(position(text, int(syntax.Offset)-1), "", "%v: must be JSON, because the name of the file ends in .json; for YAML, name it .yaml", syntax)
			return nil
		}
	}
	var root, next yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxNesting))))
	if err == nil {
		err = loader.Load(&root)
	}
	if err == io.EOF {
		r.fault(start, "", "is empty: must begin with a field, such as version: 1")
		return nil
	}
	if err == nil {
		err = loader.Load(&next)
	}
	var syntax *yaml.LoadError
	switch {
	case err == io.EOF:
		return root.Content[0]
	case err == nil:
		r.fault(&next, "", "begins another document: must be one document")
	case !errors.As(err, &syntax):
		r.fault(start, "", "%s: must be YAML", shown(err.Error()))
	case syntax.Mark.Line == 0: // of a byte that no text has
		r.fault(position(text, syntax.Mark.Index), "", "%s: must be UTF-8 without control characters", shown(syntax.Message))
	default:
		at, what := &yaml.Node{Line: syntax.Mark.Line, Column: syntax.Mark.Column}, syntax.Message
		if syntax.ContextMsg != "" {
			what = syntax.ContextMsg + ": " + what
		}
		r.fault(at, "", "%s: must be YAML with at most %d levels; check indentation and brackets, and put texts with special characters in quotes", shown(what), maxNesting)
	}
	return nil
}

// position returns where a byte of a text is. A carriage return alone ends a line, too.
func position(text []byte, offset int) *yaml.Node {
	before := text[:min(max(offset, 0), len(text))]
	ends := bytes.Count(before, []byte("\n")) + bytes.Count(before, []byte("\r")) - bytes.Count(before, []byte("\r\n"))
	line := before[bytes.LastIndexAny(before, "\r\n")+1:]
	return &yaml.Node{Line: ends + 1, Column: utf8.RuneCount(line) + 1}
}
