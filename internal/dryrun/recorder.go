package dryrun

import (
	"maps"
	"net/http"
	"strings"
)

// maxBody bounds the body that a Recorder keeps, in bytes.
const maxBody = 4096

// A Recorder is the [http.ResponseWriter] of an explained request. It keeps the answer.
type Recorder struct {
	header http.Header
	sent   http.Header // the header at the time when it was written
	status int         // 0: not written
	body   []byte
}

// Header implements [http.ResponseWriter].
func (rec *Recorder) Header() http.Header {
	if rec.header == nil {
		rec.header = make(http.Header)
	}
	return rec.header
}

// WriteHeader implements [http.ResponseWriter].
func (rec *Recorder) WriteHeader(status int) {
	if rec.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		rec.status, rec.sent = status, rec.Header().Clone()
	}
}

// Write implements [http.ResponseWriter].
func (rec *Recorder) Write(p []byte) (int, error) {
	rec.Flush()
	if _, typed := rec.sent["Content-Type"]; !typed && len(rec.body) == 0 && len(p) > 0 && rec.sent.Get("Content-Encoding") == "" {
		rec.sent.Set("Content-Type", http.DetectContentType(p)) // as a server does
	}
	rec.body = append(rec.body, p[:min(len(p), maxBody-len(rec.body))]...)
	return len(p), nil
}

// Flush implements [http.Flusher].
func (rec *Recorder) Flush() { rec.WriteHeader(http.StatusOK) }

// Answer returns what was written. The status is 0 if nothing was.
func (rec *Recorder) Answer() (status int, header http.Header, body string) {
	header = rec.sent
	if rec.status == 0 {
		header = maps.Clone(rec.Header())
	}
	return rec.status, header, strings.ToValidUTF8(string(rec.body), "\uFFFD")
}
