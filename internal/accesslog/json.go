package accesslog

import "strings"

// parseJSON reads a JSON line.
func (p *parser) parseJSON(line string, e *Entry, of *record) Reason {
	f := p.fields
	for i := range f.found {
		f.found[i] = value{rank: -1}
	}
	s := scanner{text: line, found: f.found}
	if !s.line(f.root) {
		return NotJSON
	}
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
			e.setHeader(f.names[i-fieldHeaders], append([]string{v.text}, v.more...)...)
		}
	}
	return good
}

// whole returns a number without a fraction of zeros, as some encoders write it.
func whole(number string) string {
	if n, zeros, has := strings.Cut(number, "."); has && strings.Trim(zeros, "0") == "" {
		return n
	}
	return number
}
