package otelratelimit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// ScopeName is the name of the instrumentation scope.
const ScopeName = "github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"

// Config configures [New]. The zero value is ready to use.
type Config struct {
	// MeterProvider makes the instruments. Default: [otel.GetMeterProvider].
	MeterProvider metric.MeterProvider

	// Counts counts the requests, and bounds the number of policies and routes in metrics. Set it if another
	// package reads it, too, such as a page. It must get its events from the Observer alone. Default: a new one.
	Counts *observe.Counts

	// Caches are the Stats of caches of the program by name, such as the method Stats of a jwtkey.Keys. Default: none.
	Caches map[string]func() store.CacheStats

	// KeySecret, if not nil, is a secret of at least 16 bytes. Spans then have the [observe.KeyName] of each key, as the
	// lines of [observe.LogDenials] have with the same secret.
	// Default: spans have no keys. Metrics never have keys.
	KeySecret []byte
}

// An Observer reports what Limiters do to OpenTelemetry. It is safe for concurrent use.
type Observer struct {
	counts                *observe.Counts
	caches                map[string]func() store.CacheStats
	secret                []byte // nil: spans have no keys
	duration, timeInQueue metric.Float64Histogram
	outcomes              map[string][]metric.RecordOption // made once: each decision needs one

	mu       sync.Mutex
	limiters map[string]*ratelimit.Limiter // by name
}

// New returns an Observer. Give its method Observe to [ratelimit.Config.Observe], and each Limiter to its method
// Register. New returns an error if KeySecret is too short, or if the MeterProvider does not make the instruments.
func New(cfg Config) (*Observer, error) {
	if n := len(cfg.KeySecret); cfg.KeySecret != nil && n < 16 {
		return nil, fmt.Errorf("otelratelimit: New: Config.KeySecret has %d bytes: must have at least 16 random bytes, or be nil for spans without keys", n)
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Counts == nil {
		cfg.Counts = observe.NewCounts(observe.CountsConfig{})
	}
	o := &Observer{
		counts: cfg.Counts, caches: maps.Clone(cfg.Caches), secret: slices.Clone(cfg.KeySecret),
		outcomes: make(map[string][]metric.RecordOption), limiters: make(map[string]*ratelimit.Limiter),
	}
	decisions := cfg.Counts.Snapshot().Decisions
	for _, d := range decisions {
		o.outcomes[d.Outcome] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(outcomeKey.String(d.Outcome)))}
	}
	if err := o.makeInstruments(cfg.MeterProvider.Meter(ScopeName), decisions[0]); err != nil {
		return nil, fmt.Errorf("otelratelimit: New: %w", err)
	}
	return o, nil
}

// Observe counts e, records how long it took, and adds it to the span in ctx, if that is recording. It is an observer
// for [ratelimit.Config.Observe]. To have several, use [observe.Join].
func (o *Observer) Observe(ctx context.Context, e *ratelimit.Event) {
	o.counts.Observe(ctx, e)
	outcome := observe.Outcome(e)
	if outcome != "" {
		o.duration.Record(ctx, e.Took.Seconds(), o.outcomes[outcome]...)
		if e.Waited > 0 {
			o.timeInQueue.Record(ctx, e.Waited.Seconds(), o.outcomes[outcome]...)
		}
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		o.trace(ctx, span, e, outcome)
	}
}

// Register reports the [ratelimit.Limiter.Stats] of l, with the name as attribute ratelimit.limiter, and the policies of l
// before their first request. Of Limiters that share a Store, register one. It panics if the name is taken or l is nil.
func (o *Observer) Register(name string, l *ratelimit.Limiter) {
	if l == nil {
		panic("otelratelimit: Register: l must not be nil")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limiters[name] != nil {
		panic(fmt.Sprintf("otelratelimit: Register: name %q: is taken", name))
	}
	o.limiters[name] = l
}
