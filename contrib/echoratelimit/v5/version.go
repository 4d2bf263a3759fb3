package echoratelimit

import (
	"net/http"

	"github.com/labstack/echo/v5"
)

// route returns the method and the path of the route of c. The path is "" if the router has not looked for it yet.
func route(c *echo.Context, r *http.Request) (method, path string) {
	method, path = r.Method, c.Path()
	if path == "" {
		if c.RouteInfo().Name == "" {
			return method, ""
		}
		return method, unmatched
	}
	if method == http.MethodHead && c.RouteInfo().Method == http.MethodGet { // by RouterConfig.AutoHandleHEAD
		method = http.MethodGet
	}
	return method, path
}

// observe puts a in the place of the writer of c's response, and returns that writer. If middleware has replaced the
// response, as for compression or a HEAD, a takes the place of the replacement, which may keep a status back.
func observe(c *echo.Context, a *answer) http.ResponseWriter {
	w := c.Response()
	if response, ok := w.(*echo.Response); ok {
		w, response.ResponseWriter = response.ResponseWriter, a
	} else {
		c.SetResponse(a)
	}
	return w
}

// handle answers with the error handler of echo.
func handle(c *echo.Context, err error) { c.Echo().HTTPErrorHandler(c, err) }

// refusal returns the error of a request that does not go on.
func refusal(status int, err error) error {
	return echo.NewHTTPError(status, http.StatusText(status)).Wrap(err)
}
