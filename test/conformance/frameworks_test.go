package conformance

import (
	"net/http"

	"github.com/gorilla/handlers"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/adaptertest"
)

// recovery is middleware that answers 500 after a panic.
var recovery wrapper = handlers.RecoveryHandler(handlers.RecoveryLogger(silentLogger{}))

type silentLogger struct{}

func (silentLogger) Println(...any) {}

// handlerOf returns the handler of a route of the list.
func handlerOf(route adaptertest.Route) http.Handler {
	if route.Native != nil {
		return route.Native.(http.Handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := route.Handler(adaptertest.NetHTTP{W: w, R: r}); err != nil {
			panic(err)
		}
	})
}

// limitOf returns the middleware for policies, which does nothing without any.
func limitOf(app adaptertest.App, policies []ratelimit.Policy) wrapper {
	if app.Limiter == nil || len(policies) == 0 {
		return direct
	}
	return app.Limiter.Limit(policies...)
}

// behind returns h behind layers, the outermost first.
func behind[T any](layers []T, h http.Handler) http.Handler {
	for i := range layers {
		h = any(layers[len(layers)-1-i]).(wrapper)(h)
	}
	return h
}

// without adds to lacks what no router on net/http has. noErrors is why Config.Errors of an adapter has no counterpart.
func without(noErrors string, lacks map[string]string) map[string]string {
	all := map[string]string{"FromContext in a logger outside": "the handlers outside have a request of their own, without the decision"}
	for _, status := range []string{
		"a denial", "FailClosed", "ErrNoKey", "ErrBadRequest", "another error of Key", "a rate of 0",
		"a client that leaves while it waits", "a refusal inside settles outside",
	} {
		all["Errors: "+status] = noErrors
	}
	for name, reason := range lacks {
		all[name] = reason
	}
	return all
}
