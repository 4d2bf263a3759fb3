package denial

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// An RPC is a refusal as a client of gRPC or Connect gets it from the adapters grpcratelimit and connectratelimit.
type RPC struct {
	Code     uint32   // of google/rpc/code.proto
	Message  string   // a fixed text
	Policies []string // the policies that denied the call

	// RetryAfter is when the client may try again: [ratelimit.Never] if that cannot succeed, or is not known.
	RetryAfter time.Duration
}

// RPCOf returns the refusal of a call. The arguments are those of [ratelimit.Responder], and the headers that the limiter
// has set.
func RPCOf(r *http.Request, status int, limited http.Header) RPC {
	switch status {
	case http.StatusTooManyRequests:
		d, _ := ratelimit.FromContext(r.Context())
		rpc := RPC{Code: 8, Message: "rate limit exceeded", Policies: d.Denied(), RetryAfter: d.RetryAfter()}
		if d.AtOnce() {
			rpc.Message = "too many requests at once"
		}
		return rpc
	case http.StatusBadRequest:
		return RPC{Code: 3, Message: "bad request", RetryAfter: ratelimit.Never}
	case http.StatusForbidden:
		return RPC{Code: 7, Message: "forbidden", RetryAfter: ratelimit.Never}
	default:
		seconds, _ := strconv.Atoi(limited.Get("Retry-After"))
		return RPC{Code: 14, Message: "temporarily unavailable", RetryAfter: time.Duration(seconds) * time.Second}
	}
}

// Pushback returns the value of grpc-retry-pushback-ms: when a retry policy of gRPC sends the call again, in milliseconds.
// After -1 it does not.
func (r RPC) Pushback() string {
	if r.RetryAfter == ratelimit.Never {
		return "-1"
	}
	return strconv.FormatInt(int64((r.RetryAfter+time.Millisecond-1)/time.Millisecond), 10)
}

// RPCStatus returns the HTTP status that google/rpc/code.proto has for the code of an error, for [ratelimit.Response]. It
// is 500 for codes that are not known, and for 0, which stands for no error.
func RPCStatus(code uint32) int {
	if status, known := rpcStatuses[code]; known {
		return status
	}
	return http.StatusInternalServerError
}

var rpcStatuses = map[uint32]int{
	1:  499, // as the limiter reports a client that has left
	3:  http.StatusBadRequest,
	4:  http.StatusGatewayTimeout,
	5:  http.StatusNotFound,
	6:  http.StatusConflict,
	7:  http.StatusForbidden,
	8:  http.StatusTooManyRequests,
	9:  http.StatusBadRequest,
	10: http.StatusConflict,
	11: http.StatusBadRequest,
	12: http.StatusNotImplemented,
	14: http.StatusServiceUnavailable,
	16: http.StatusUnauthorized,
}
