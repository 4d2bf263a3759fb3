package answer

import (
	"net/http"
	"strconv"
	"strings"
)

// grpcContentType returns the Content-Type of an answer to r if that is a request of gRPC, or of gRPC-Web,
// which travels over HTTP/1.1 too; otherwise "". All of gRPC's are a POST: a client that asks for something else
// under its Content-Type must not make a 200 of a denial, which caches and monitors take for success.
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
	// Some clients insist on the codec that they asked for, although there is no message to decode.
	switch {
	case strings.EqualFold(codec, "proto"):
		t += "+proto"
	case strings.EqualFold(codec, "json"):
		t += "+json"
	}
	return t
}

// writeGRPC answers with a status of gRPC's in the header and no message, a Trailers-Only response. From a bare
// 429, a client would conclude that the server is unavailable.
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
	w.WriteHeader(http.StatusOK)
}

// percentEncode encodes a grpc-message: all bytes but the printable ones of ASCII, and the percent sign.
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
