package answer

import (
	"encoding/json"
	"strconv"
	"time"
)

// A problem is the reason for a refusal, in the terms of RFC 9457. It does not contain the error, which is logged.
type problem struct {
	kind     string
	status   int
	after    time.Duration // when to retry: in whole seconds, store.Never, or 0 if unknown
	until    time.Time     // the end of the period that after is the time to; zero without a quota
	atOnce   bool          // other requests hold all slots of a concurrency limit
	violated []string      // names of policies
}

// Problem types of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const (
	quotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	temporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// json returns the problem as a body. It does not use encoding/json, which takes as long as the rest of a denial. A
// flood of requests is answered with it.
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
	return append(b, "}\n"...) // the line break is for users of a terminal
}

// appendQuoted appends s as a JSON string. Most need no escape.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(s) // Marshal does not fail for a string
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
