package accesslog

import (
	"strings"

	"github.com/valyala/fastjson"
)

// parseJSON reads a JSON line.
func (p *parser) parseJSON(line string, e *Entry, of *record) Reason {
	f := p.fields
	for i := range f.found {
		f.found[i] = value{rank: -1}
	}
	parsed, err := p.json.Parse(line)
	if err != nil || parsed.Type() != fastjson.TypeObject {
		return NotJSON
	}
	f.look(f.root, parsed)
	at := &f.found[fieldTime]
	if at.rank < 0 || at.text == "" {
		return NoTime
	}
	if !p.timeOf(at.text, e) {
		return WrongTime
	}
	of.addr, of.host = f.found[fieldAddr].text, f.found[fieldHost].text
	of.status, of.size, of.proto = f.found[fieldStatus].text, f.found[fieldBytes].text, f.found[fieldProto].text
	of.method, of.target = f.found[fieldMethod].text, f.found[fieldURL].text
	switch request := &f.found[fieldRequest]; {
	case of.method != "" && of.target != "":
	case request.rank >= 0 && !request.isRaw:
		if reason := of.splitRequest(request.text); reason != good {
			return reason
		}
	default:
		return NoRequest
	}
	of.status, of.size = whole(of.status), whole(of.size)
	for i := fieldHeaders; i < len(f.found); i++ {
		if v := &f.found[i]; v.rank >= 0 && v.text != "-" && (v.text != "" || len(v.more) > 0) {
			of.setHeader(f.names[i-fieldHeaders], append([]string{v.text}, v.more...)...)
		}
	}
	return good
}

// look finds the fields of ours in an object, whose names may be those below n.
func (f *fields) look(n *node, in *fastjson.Value) {
	in.GetObject().Visit(func(name []byte, v *fastjson.Value) {
		child := n.below[string(name)]
		if child == nil {
			return
		}
		if v.Type() == fastjson.TypeObject {
			f.look(child, v)
		} else if child.is >= 0 {
			f.keep(child, v)
		}
	})
}

// keep keeps a value unless there is one of a better name. The texts of a list are several values of a header.
func (f *fields) keep(n *node, v *fastjson.Value) {
	found := value{rank: n.rank}
	switch v.Type() {
	case fastjson.TypeNull:
		return
	case fastjson.TypeString:
		found.text = string(v.GetStringBytes())
	case fastjson.TypeArray:
		for _, each := range v.GetArray() {
			if each.Type() == fastjson.TypeString {
				found.more = append(found.more, string(each.GetStringBytes()))
			}
		}
		if len(found.more) == 0 {
			return
		}
		found.text, found.more = found.more[0], found.more[1:]
	default:
		found.text, found.isRaw = v.String(), true
	}
	if old := &f.found[n.is]; old.rank < 0 || n.rank <= old.rank {
		*old = found
	}
}

// whole returns a number without a fraction of zeros, as some encoders write it.
func whole(number string) string {
	if n, zeros, has := strings.Cut(number, "."); has && strings.Trim(zeros, "0") == "" {
		return n
	}
	return number
}
