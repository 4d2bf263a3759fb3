package simulate

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit"
)

// An answer is the ResponseWriter of a request. It writes nothing, and answers to the limiter as the log says that
// the request was answered.
type answer struct {
	header   http.Header
	response ratelimit.Response

	logged      int // status
	loggedBytes int64
}

var _ ratelimit.Responder = (*answer)(nil)

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
	if a.response.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.response.Status, a.response.Written = status, true
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.wrote(int64(len(p)))
	return len(p), nil
}

func (a *answer) wrote(n int64) {
	a.WriteHeader(http.StatusOK)
	if a.response.Status != http.StatusNoContent && a.response.Status != http.StatusNotModified { // net/http accepts no body then
		a.response.Bytes += n
	}
}

// Refuse implements [ratelimit.Responder].
func (a *answer) Refuse(_ *http.Request, status int, _ error) bool {
	a.response.Status, a.response.Written = status, true
	return true
}

// Response implements [ratelimit.Responder].
func (a *answer) Response() ratelimit.Response { return a.response }
