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

// wrapHTTPRate uses the key functions of httprate. They are deprecated. The one for X-Forwarded-For trusts every
// client. But they are cheaper than their replacement, a middleware of chi in front.
func wrapHTTPRate(s scene, next http.Handler) http.Handler {
	key := httprate.KeyByIP //lint:ignore SA1019 see above
	if s == byForwardedFor {
		key = httprate.KeyByRealIP //lint:ignore SA1019 see above
	}
	return httprate.LimitBy(int(generous.Rate), generous.Per, key)(next)
}
