package otelratelimit

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// trace adds e to the span that was recording when it happened.
func (o *Observer) trace(ctx context.Context, span trace.Span, e *ratelimit.Event, decided bool) {
	if e.Op == "settle" {
		o.traceSettlement(span, e)
		return
	}
	if !decided {
		return
	}
	attrs := append(make([]attribute.KeyValue, 0, 7), operationKey.String(e.Op), allowedKey.Bool(e.Allowed))
	if r := tightest(ctx, e); r != nil {
		attrs = append(attrs, policyKey.String(r.Policy), remainingKey.Int64(r.Remaining))
		attrs = o.appendKey(attrs, r)
	}
	if e.Waited > 0 {
		attrs = append(attrs, queueTimeKey.Float64(e.Waited.Seconds()))
	}
	if e.Degraded() {
		attrs = append(attrs, degradedKey.Bool(true))
	}
	span.SetAttributes(attrs...)
	for i := range e.Results {
		if r := &e.Results[i]; !r.Allowed {
			o.traceDenial(span, e, r)
		}
	}
	if e.Err != nil {
		span.AddEvent("ratelimit.failed", trace.WithAttributes(operationKey.String(e.Op), errorKey.String(errorType(e.Err))))
	}
}

func (o *Observer) traceDenial(span trace.Span, e *ratelimit.Event, r *ratelimit.Result) {
	name := "ratelimit.denied"
	if r.Shadow {
		name = "ratelimit.would_deny"
	}
	attrs := append(make([]attribute.KeyValue, 0, 7),
		operationKey.String(e.Op), policyKey.String(r.Policy), limitKey.String(r.Limit.String()), costKey.Int64(r.Cost))
	if r.RetryAfter != ratelimit.Never {
		attrs = append(attrs, retryAfterKey.Float64(r.RetryAfter.Seconds()))
	}
	if r.Blocked {
		attrs = append(attrs, blockedKey.Bool(true))
	}
	span.AddEvent(name, trace.WithAttributes(o.appendKey(attrs, r)...))
}

func (o *Observer) traceSettlement(span trace.Span, e *ratelimit.Event) {
	for i := range min(len(e.Results), len(e.Estimates)) {
		r := &e.Results[i]
		attrs := []attribute.KeyValue{policyKey.String(r.Policy), estimateKey.Int64(e.Estimates[i]), costKey.Int64(r.Cost)}
		if e.Err != nil { // it costs what it was charged before
			attrs = append(attrs, errorKey.String(errorType(e.Err)))
		}
		span.AddEvent("ratelimit.settled", trace.WithAttributes(o.appendKey(attrs, r)...))
	}
}

func (o *Observer) appendKey(attrs []attribute.KeyValue, r *ratelimit.Result) []attribute.KeyValue {
	if o.secret == nil {
		return attrs
	}
	return append(attrs, keyKey.String(observe.KeyName(o.secret, r.Key)))
}

// tightest returns the result that decided, or came nearest to it, among those of all limiters of the request so far. It
// returns nil if there is none.
func tightest(ctx context.Context, e *ratelimit.Event) *ratelimit.Result {
	results := e.Results
	if d, ok := ratelimit.FromContext(ctx); ok && len(d.Results) > len(results) {
		results = d.Results
	}
	var tightest *ratelimit.Result
	for i := range results {
		if r := &results[i]; !r.Shadow && (tightest == nil || tighter(r, tightest)) {
			tightest = r
		}
	}
	return tightest
}

func tighter(r, than *ratelimit.Result) bool {
	if r.Allowed != than.Allowed {
		return than.Allowed
	}
	if r.RetryAfter != than.RetryAfter {
		return r.RetryAfter > than.RetryAfter
	}
	return r.Remaining < than.Remaining
}
