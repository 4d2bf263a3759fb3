package ratelimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// A problem is the body of an answer of ours (RFC 9457). It says nothing of errors: those are in the log.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Problem types of draft-ietf-httpapi-ratelimit-headers-11, section 6.
const (
	quotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	temporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// tooManyRequests is the default Config.Deny.
func tooManyRequests(w http.ResponseWriter, r *http.Request) {
	p := problem{Type: quotaExceeded, Title: "Too many requests", Status: http.StatusTooManyRequests}
	if d, ok := FromContext(r.Context()); ok {
		p.Violated = d.Denied()
	}
	p.write(w, r)
}

// unavailableFor is the Retry-After of a 503, in seconds: about as long as a failover takes.
const unavailableFor = 5

// refuse is the default Config.Error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if errors.Is(err, ErrNoKey) {
		p := problem{Type: "about:blank", Title: http.StatusText(http.StatusForbidden), Status: http.StatusForbidden}
		p.write(w, r)
		return
	}
	h.Set("Retry-After", strconv.Itoa(unavailableFor))
	p := problem{Type: temporaryReducedCapacity, Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable}
	p.write(w, r)
}

func (p problem) write(w http.ResponseWriter, r *http.Request) {
	body, _ := json.Marshal(p) // strings and an int do not fail
	body = append(body, '\n')  // for those who read it in a terminal
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	// Of a response that another handler may have begun to describe.
	h.Del("Content-Encoding")
	h.Del("Etag")
	h.Del("Last-Modified")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; nobody else is there to tell
	}
}
