package answer

import (
	"encoding/json"
	"strconv"
	"time"
)

// A problem is why a request does not go on, as RFC 9457 has it. It says nothing of errors: those are in the
// log.
type problem struct {
	kind     string
	status   int
	after    time.Duration // when to come back: in whole seconds, store.Never, or 0 if nobody knows
	violated []string      // policies
}

// Problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const (
	quotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	temporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// json returns the problem as a body. It is put together by hand because a flood is answered with it, and
// encoding/json takes as long as all the rest of a denial.
func (p *problem) json(t Text) []byte {
	b := make([]byte, 0, 256) // enough for the default words and a short name
	b = append(b, `{"type":`...)
	b = appendQuoted(b, p.kind)
	b = append(b, `,"title":`...)
	b = appendQuoted(b, t.Title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	if t.Detail != "" {
		b = append(b, `,"detail":`...)
		b = appendQuoted(b, t.Detail)
	}
	for i, name := range p.violated {
		b = append(b, [...]string{`,"violated-policies":[`, ","}[min(i, 1)]...)
		b = appendQuoted(b, name)
	}
	if len(p.violated) > 0 {
		b = append(b, ']')
	}
	return append(b, "}\n"...) // the line break is for those who read it in a terminal
}

// appendQuoted appends s as a JSON string. Most need no escape.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(s) // a string does not fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
