package simulate

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
)

// An answer is the ResponseWriter of a request. It writes nothing, and answers to the limiter as the log says that
// the request was answered.
type answer struct {
	header  http.Header
	status  int
	written bool
	bytes   int64

	logged      int // status
	loggedBytes int64
}

var _ ratelimit.Responder = (*answer)(nil)

func (a *answer) begin(entry *accesslog.Entry) {
	if a.header == nil {
		a.header = make(http.Header)
	}
	clear(a.header)
	a.status, a.written, a.bytes = 0, false, 0
	a.logged, a.loggedBytes = entry.Status, entry.Bytes
}

// end is the handler behind the limiters. It answers as the log says.
func (a *answer) end() {
	if a.logged != 0 {
		a.WriteHeader(a.logged)
	}
	if a.loggedBytes > 0 {
		a.wrote(a.loggedBytes)
	}
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.written = a.written || a.status != 0
}

func (a *answer) Write(p []byte) (int, error) {
	a.wrote(int64(len(p)))
	return len(p), nil
}

func (a *answer) wrote(n int64) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.written = true
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified { // net/http accepts no body then
		a.bytes += n
	}
}

// Refuse implements [ratelimit.Responder].
func (a *answer) Refuse(_ *http.Request, status int, _ error) bool {
	a.status, a.written = status, true
	return true
}

// Response implements [ratelimit.Responder].
func (a *answer) Response() ratelimit.Response {
	return ratelimit.Response{Status: a.status, Written: a.written, Bytes: a.bytes}
}
