package answer

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/store"
)

// grpcContentType returns the Content-Type of a response to r if r is a request of gRPC or gRPC-Web, which also uses
// HTTP/1.1. Otherwise it returns "". gRPC sends POST only. So other methods return "", whatever their Content-Type: a
// client could turn a denial into a 200, which caches and monitors take for success.
func grpcContentType(r *http.Request) string {
	const prefix = "application/grpc"
	if r.Method != http.MethodPost {
		return ""
	}
	asked := r.Header.Get("Content-Type")
	if len(asked) < len(prefix) || !strings.EqualFold(asked[:len(prefix)], prefix) {
		return ""
	}
	asked, _, _ = strings.Cut(asked[len(prefix):], ";")
	protocol, codec, _ := strings.Cut(trimBlanks(asked), "+")
	var t string
	switch {
	case protocol == "" && r.ProtoMajor >= 2:
		t = prefix
	case strings.EqualFold(protocol, "-web"):
		t = prefix + "-web"
	case strings.EqualFold(protocol, "-web-text"):
		t = prefix + "-web-text"
	default:
		return ""
	}
	// Some clients require the codec that they asked for, although there is no message to decode.
	switch {
	case strings.EqualFold(codec, "proto"):
		t += "+proto"
	case strings.EqualFold(codec, "json"):
		t += "+json"
	}
	return t
}

// writeGRPC answers with a gRPC status in the header and without a message (Trailers-Only). From a 429 without it, a
// client would conclude that the server is unavailable.
func (p *problem) writeGRPC(w http.ResponseWriter, contentType string, t Text) {
	code := 14 // UNAVAILABLE
	switch p.status {
	case http.StatusTooManyRequests:
		code = 8 // RESOURCE_EXHAUSTED
	case http.StatusBadRequest:
		code = 3 // INVALID_ARGUMENT
	case http.StatusForbidden:
		code = 7 // PERMISSION_DENIED
	}
	message := t.Title
	if t.Detail != "" {
		message += ": " + t.Detail
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", "0")
	h.Set("Grpc-Status", strconv.Itoa(code))
	h.Set("Grpc-Message", percentEncode(message))
	if after := p.pushback(); after != "" {
		h.Set("Grpc-Retry-Pushback-Ms", after)
	}
	w.WriteHeader(http.StatusOK)
}

// pushback returns when a retry policy of gRPC may send the request again, in milliseconds, "" if that is unknown. A
// client does not retry after a negative number. It would otherwise follow its own backoff, and ignores Retry-After.
func (p *problem) pushback() string {
	switch {
	case p.after == store.Never || p.status == http.StatusBadRequest || p.status == http.StatusForbidden:
		return "-1"
	case p.after > 0:
		return strconv.FormatInt(p.after.Milliseconds(), 10)
	}
	return ""
}

// percentEncode encodes a grpc-message: all bytes except printable ASCII, and the percent sign.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
