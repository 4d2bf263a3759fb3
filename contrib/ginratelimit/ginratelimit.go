// Package ginratelimit limits requests to a [gin.Engine] with package [ratelimit].
//
//	limits := ginratelimit.New(limiter, ginratelimit.Config{})
//	r.Use(limits.Handler())
//	r.POST("/login", limits.Limit(login), handleLogin)
//
// A program to try is in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/ginratelimit/example.
//
// [ratelimit.Route] and Event.Route have the path of the route, such as "GET /items/:id", or "unmatched" for a 404 or 405.
// A route of Any is one key for each of its nine methods.
// A Settle such as [ratelimit.FailedLogins] gets the status that gin sends, also if c.Status alone has set it.
//
// In handlers use [FromContext], and [ratelimit.SetCost] with c.Request.Context(). A gin.Context as a context.Context
// finds the decision only with gin.Engine.ContextWithFallback. Key functions see c.Request, without the values of c.Set.
// Admit, with c.Writer and c.Request, does not abort: if it returns false, middleware must call c.Abort.
//
// # What gin makes impossible
//
//   - gin has no central error handler. If middleware outside of the limiter chooses the status of an error from
//     c.Errors, the request is settled before: Response.Written is false, and FailedLogins counts it. Mount such
//     middleware inside of the limiter if a Settle needs the status.
//   - gin runs no middleware when it redirects to add or remove a slash at the end of a path. To limit these requests,
//     mount limiter.Handler around the engine, where no route is known.
//   - Engine.HandleContext runs the handlers again, and they are charged again.
package ginratelimit

import (
	"bufio"
	"cmp"
	"errors"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Limiter].
type Config struct {
	// Errors leaves the answers to refused requests to the error handling of gin. The limiter sets the
	// status and the headers, adds a private error by c.Error, and aborts. Middleware outside then finds
	// c.Errors and c.Writer.Status(), which is 429, 400, 403, 503 or 499, and for a 429 the decision with
	// [FromContext]. Admit still answers itself. Default: Deny and Error of [ratelimit.Config] answer.
	Errors bool
}

// A Limiter makes handlers for gin. Its other methods are those of the [ratelimit.Limiter].
type Limiter struct {
	*ratelimit.Limiter
	cfg Config
}

// New returns a Limiter for gin. It panics if limiter is nil.
func New(limiter *ratelimit.Limiter, cfg Config) *Limiter {
	if limiter == nil {
		panic("ginratelimit: New: limiter: must not be nil")
	}
	return &Limiter{limiter, cfg}
}

// Handler returns middleware that enforces the policies of [ratelimit.Config], like [ratelimit.Limiter.Handler].
func (l *Limiter) Handler() gin.HandlerFunc { return l.adapt(l.Limiter.Handler(next)) }

// Limit returns middleware that enforces policies, like [ratelimit.Limiter.Limit]: for an engine, a group or a route.
func (l *Limiter) Limit(policies ...ratelimit.Policy) gin.HandlerFunc {
	return l.adapt(l.Limiter.Limit(policies...)(next))
}

// FromContext returns the decision about a request, like [ratelimit.FromContext].
func FromContext(c *gin.Context) (*ratelimit.Decision, bool) {
	return ratelimit.FromContext(c.Request.Context())
}

// adapt returns h, which is a limiter around next, as middleware.
func (l *Limiter) adapt(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := &call{ResponseWriter: c.Writer, c: c, errors: l.cfg.Errors, outer: c.Request.Pattern}
		c.Request.Pattern = "unmatched"
		if path := c.FullPath(); path != "" {
			c.Request.Pattern = c.Request.Method + " " + path
		}
		defer x.leave()
		h.ServeHTTP((*responder)(x), c.Request)
	}
}

// next is inside every limiter. It calls the remaining handlers of the request.
var next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	x := (*call)(w.(*responder))
	x.passed = true
	x.enter(r)
	x.c.Writer = (*writer)(x)
	x.c.Next()
})

// A call is a request at one limiter.
type call struct {
	gin.ResponseWriter // of the handlers outside
	c                  *gin.Context
	outer              string // the pattern of a router around gin
	errors             bool   // Config.Errors
	passed             bool   // the remaining handlers were called
	status             int    // that handlers have set, perhaps 200
	hijacked           bool
	before             bool // a status was written before the connection was taken over

	wrapConn func(net.Conn) net.Conn // for a connection that is taken over; nil if the request holds no slot
}

// leave ends the call, also if it panics: if middleware outside recovers, gin goes on with the next handler.
func (x *call) leave() {
	if x.c.Writer == gin.ResponseWriter((*writer)(x)) {
		x.c.Writer = x.ResponseWriter
	}
	if !x.passed {
		x.c.Abort()
	}
}

// enter shows the limiter's request to handlers.
func (x *call) enter(r *http.Request) {
	if r.Pattern == "unmatched" { // only the limiter knows it by that name
		r.Pattern = x.outer
	}
	x.c.Request = r
}

// A responder is the call as the limiter sees it.
type responder call

var errDenied = errors.New("ratelimit: request denied")

// Refuse implements [ratelimit.Responder].
func (x *responder) Refuse(r *http.Request, status int, err error) bool {
	(*call)(x).enter(r)
	if !x.errors {
		return false
	}
	if err == nil {
		err = errDenied
	}
	x.c.Status(status)
	x.c.Error(err)
	return true
}

// WrapConn keeps wrap for a connection that handlers take over: see [ratelimit.Responder].
func (x *responder) WrapConn(wrap func(net.Conn) net.Conn) { x.wrapConn = wrap }

// Response implements [ratelimit.Responder]. gin writes a status of c.Status past all writers, after the last handler. So
// Response also looks at the status that was set. Middleware outside whose writer holds the status back may hide it.
func (x *responder) Response() ratelimit.Response {
	response := ratelimit.Response{Bytes: int64(max(0, x.Size())), Hijacked: x.hijacked}
	status := x.ResponseWriter.Status()
	if status == http.StatusOK {
		status = cmp.Or(x.status, status)
	}
	if x.hijacked {
		response.Written = x.before
	} else {
		response.Written = x.status != 0 || response.Bytes > 0 || status != http.StatusOK // a flush does not count
	}
	if response.Written {
		response.Status = status
	}
	return response
}

// A writer is the call as handlers see it.
type writer call

// Unwrap is for [http.ResponseController].
func (x *writer) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements [http.ResponseWriter]. c.Status calls it. gin ignores statuses below 1, and those that come late.
func (x *writer) WriteHeader(status int) {
	if status > 0 && !x.Written() {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Hijack implements [http.Hijacker].
func (x *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	before := x.Written()
	conn, rw, err := x.ResponseWriter.Hijack()
	if err == nil {
		x.hijacked, x.before = true, before
		if x.wrapConn != nil {
			conn = x.wrapConn(conn)
		}
	}
	return conn, rw, err
}
