package otelratelimit

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// The attributes that several metrics, spans or events have.
const (
	policyKey    = attribute.Key("ratelimit.policy")
	resultKey    = attribute.Key("ratelimit.result")
	outcomeKey   = attribute.Key("ratelimit.outcome")
	operationKey = attribute.Key("ratelimit.operation")
	costKey      = attribute.Key("ratelimit.cost")
	limiterKey   = attribute.Key("ratelimit.limiter")
	storeKey     = attribute.Key("ratelimit.store")
	cacheKey     = attribute.Key("ratelimit.cache.name")
	lookupKey    = attribute.Key("ratelimit.cache.result")
)

// trace adds e, with its outcome, to the span that was recording when it happened.
func (o *Observer) trace(ctx context.Context, span trace.Span, e *ratelimit.Event, outcome string) {
	if outcome == "" {
		o.traceSettlement(span, e)
		return
	}
	attrs := append(make([]attribute.KeyValue, 0, 8), operationKey.String(e.Op), outcomeKey.String(outcome), attribute.Bool("ratelimit.allowed", e.Allowed))
	if r := tightest(ctx, e); r != nil {
		attrs = o.withKey(r, append(attrs, policyKey.String(r.Policy), attribute.Int64("ratelimit.remaining", r.Remaining))...)
	}
	if e.Waited > 0 {
		attrs = append(attrs, attribute.Float64("ratelimit.time_in_queue", e.Waited.Seconds()))
	}
	if e.Degraded() {
		attrs = append(attrs, attribute.Bool("ratelimit.degraded", true))
	}
	span.SetAttributes(attrs...)
	for i := range e.Results {
		if r := &e.Results[i]; !r.Allowed {
			o.traceDenial(span, e, r)
		}
	}
}

func (o *Observer) traceDenial(span trace.Span, e *ratelimit.Event, r *ratelimit.Result) {
	name := "ratelimit.denied"
	if r.Shadow {
		name = "ratelimit.would_deny"
	}
	attrs := o.withKey(r, operationKey.String(e.Op), policyKey.String(r.Policy), attribute.String("ratelimit.limit", r.Limit.String()), costKey.Int64(r.Cost))
	if r.RetryAfter != ratelimit.Never {
		attrs = append(attrs, attribute.Float64("ratelimit.retry_after", r.RetryAfter.Seconds()))
	}
	if r.Blocked {
		attrs = append(attrs, attribute.Bool("ratelimit.blocked", true))
	}
	span.AddEvent(name, trace.WithAttributes(attrs...))
}

// traceSettlement adds an event for each policy that e settles. No other operation has Estimates.
func (o *Observer) traceSettlement(span trace.Span, e *ratelimit.Event) {
	for i := range min(len(e.Results), len(e.Estimates)) {
		r := &e.Results[i]
		attrs := o.withKey(r, policyKey.String(r.Policy), attribute.Int64("ratelimit.estimate", e.Estimates[i]), costKey.Int64(r.Cost))
		if e.Err != nil { // it costs what it was charged before
			attrs = append(attrs, attribute.Bool("ratelimit.failed", true))
		}
		span.AddEvent("ratelimit.settled", trace.WithAttributes(attrs...))
	}
}

// withKey returns attrs, and the key of r if spans have keys.
func (o *Observer) withKey(r *ratelimit.Result, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if o.secret == nil {
		return attrs
	}
	return append(attrs, attribute.String("ratelimit.key", observe.KeyName(o.secret, r.Key)))
}

// tightest returns the result that denied the request or came nearest to it, among those of all its limiters so far. It
// returns nil if there is none.
func tightest(ctx context.Context, e *ratelimit.Event) *ratelimit.Result {
	results := e.Results
	if d, ok := ratelimit.FromContext(ctx); ok && len(d.Results) > len(results) {
		results = d.Results
	}
	results = slices.Clone(results)
	for i := range results {
		results[i].Hidden = false // from clients, and not from operators
	}
	return (&ratelimit.Decision{Results: results}).Tightest()
}
