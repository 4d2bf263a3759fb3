package accesslog

import (
	"strings"

	"github.com/valyala/fastjson"
)

// parseJSON reads a JSON line.
func (r *Reader) parseJSON(line string, e *Entry, of *record) *Reason {
	parsed, err := r.json.Parse(line)
	if err != nil || parsed.Type() != fastjson.TypeObject {
		return NotJSON
	}
	text := func(ours string) string { return first(r.fields.find(parsed, ours)) }
	switch at := text("time"); {
	case at == "":
		return NoTime
	case !r.timeOf(at, e):
		return WrongTime
	}
	of.addr, of.host, of.proto = text("addr"), text("host"), text("proto")
	of.status, of.size = whole(text("status")), whole(text("bytes"))
	of.method, of.target = text("method"), text("url")
	if of.method == "" || of.target == "" {
		request := text("request")
		if request == "" {
			return NoRequest
		}
		if reason := of.splitRequest(request); reason != nil {
			return reason
		}
	}
	for ours := range r.fields {
		if name, ok := strings.CutPrefix(ours, isHeader); ok {
			if values := r.fields.find(parsed, ours); first(values) != "" && values[0] != "-" {
				of.header[name] = values
			}
		}
	}
	return nil
}

// find returns the texts that a line has for a field of ours: several if it has a list.
func (f fields) find(line *fastjson.Value, ours string) (texts []string) {
	for _, path := range f[ours] {
		v := line.Get(path...)
		if v == nil {
			continue
		}
		switch v.Type() {
		case fastjson.TypeNull, fastjson.TypeObject:
		case fastjson.TypeString:
			return []string{string(v.GetStringBytes())}
		case fastjson.TypeArray:
			for _, each := range v.GetArray() {
				if each.Type() == fastjson.TypeString {
					texts = append(texts, string(each.GetStringBytes()))
				}
			}
			if texts != nil {
				return texts
			}
		default: // a number, or true or false
			return []string{v.String()}
		}
	}
	return nil
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// whole returns a number without a fraction of zeros, as some encoders write it.
func whole(number string) string {
	if n, zeros, has := strings.Cut(number, "."); has && strings.Trim(zeros, "0") == "" {
		return n
	}
	return number
}
