package echoratelimit

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// route returns the method and the path of the route of c. The path is "" if the router has not looked for it yet.
func route(c echo.Context, r *http.Request) (method, path string) {
	method, path = r.Method, c.Path()
	if path == "" {
		if routeOf(c.Echo(), r) != "" {
			return method, ""
		}
		return method, unmatched
	}
	return method, path
}

// routeOf returns the path of the route that e has for r.
func routeOf(e *echo.Echo, r *http.Request) string {
	router := e.Router()
	if ofHost, ok := e.Routers()[r.Host]; ok {
		router = ofHost
	}
	c := e.AcquireContext()
	defer e.ReleaseContext(c)
	c.Reset(r, nil)
	router.Find(r.Method, echo.GetPath(r), c)
	return c.Path()
}

// observe puts a in the place of the writer of c's response, and returns that writer.
func observe(c echo.Context, a *answer) http.ResponseWriter {
	response := c.Response()
	w := response.Writer
	response.Writer = a
	return w
}

// handle answers with the error handler of echo.
func handle(c echo.Context, err error) { c.Error(err) }

// refusal returns the error of a request that does not go on.
func refusal(status int, err error) error { return echo.NewHTTPError(status).SetInternal(err) }
