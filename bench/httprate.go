package main

import (
	"net/http"

	"github.com/go-chi/httprate"
)

func init() {
	middlewareCompetitors = append(middlewareCompetitors, middleware{
		name: version("httprate", "github.com/go-chi/httprate"),
		wrap: wrapHTTPRate,
	})
}

// wrapHTTPRate uses its own key functions. They are deprecated, the one for X-Forwarded-For because it
// believes anybody, but cheaper than what they are to be replaced by, a middleware of chi's in front.
func wrapHTTPRate(s scene, next http.Handler) http.Handler {
	key := httprate.KeyByIP //lint:ignore SA1019 see above
	if s == byForwardedFor {
		key = httprate.KeyByRealIP //lint:ignore SA1019 see above
	}
	return httprate.LimitBy(int(generous.Rate), generous.Per, key)(next)
}
