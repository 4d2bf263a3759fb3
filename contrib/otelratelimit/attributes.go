package otelratelimit

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// The attributes of metrics and spans.
const (
	policyKey    = attribute.Key("ratelimit.policy")
	resultKey    = attribute.Key("ratelimit.result")
	outcomeKey   = attribute.Key("ratelimit.outcome")
	operationKey = attribute.Key("ratelimit.operation")
	storeKey     = attribute.Key("ratelimit.store")
	cacheKey     = attribute.Key("ratelimit.cache.name")
	lookupKey    = attribute.Key("ratelimit.cache.result")

	errorKey  = attribute.Key("error.type")
	methodKey = attribute.Key("http.request.method")
	routeKey  = attribute.Key("http.route")

	allowedKey    = attribute.Key("ratelimit.allowed")
	remainingKey  = attribute.Key("ratelimit.remaining")
	queueTimeKey  = attribute.Key("ratelimit.time_in_queue")
	degradedKey   = attribute.Key("ratelimit.degraded")
	blockedKey    = attribute.Key("ratelimit.blocked")
	limitKey      = attribute.Key("ratelimit.limit")
	retryAfterKey = attribute.Key("ratelimit.retry_after")
	keyKey        = attribute.Key("ratelimit.key")
	costKey       = attribute.Key("ratelimit.cost")
	estimateKey   = attribute.Key("ratelimit.estimate")
)

// other is the value that conventions have for the rest.
const other = "_OTHER"

// errorType returns the class of an error of a decision. The text of an error may have parts of a request.
func errorType(err error) string {
	switch {
	case errors.Is(err, ratelimit.ErrBadRequest):
		return "bad_request"
	case errors.Is(err, ratelimit.ErrNoKey) && !errors.Is(err, ratelimit.ErrOutage): // with both, it is not known
		return "no_key"
	case errors.Is(err, store.ErrOverloaded):
		return "overloaded"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return other
	}
}

// splitRoute returns the method and the rest of a route such as "GET /items/{id}". An unusual method is other, since a
// router might take it from a request.
func splitRoute(route string) (method, pattern string) {
	method, pattern, found := strings.Cut(route, " ")
	if !found {
		return "", route
	}
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE":
		return method, strings.TrimLeft(pattern, " \t")
	}
	if strings.ContainsRune(method, '/') { // of a ServeMux within chi: the prefix, and a pattern
		return "", route
	}
	return other, strings.TrimLeft(pattern, " \t")
}
