package otelratelimit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// ScopeName is the name of the instrumentation scope.
const ScopeName = "github.com/go-tokenbucket/ratelimit/contrib/otelratelimit"

// minSecret is the minimum length of a KeySecret in bytes, as in package observe.
const minSecret = 16

// Config configures [New]. The zero value is ready to use.
type Config struct {
	// MeterProvider makes the instruments. Default: [otel.GetMeterProvider].
	MeterProvider metric.MeterProvider

	// Counts counts the requests, and bounds the number of policies and routes in metrics. Set it if another
	// package reads it, too, such as a page. It must get its events from the Observer alone. Default: a new one.
	Counts *observe.Counts

	// Caches are caches of the program whose Stats are reported, by name. [jwtkey.Keys] is one. Default: none.
	//
	// [jwtkey.Keys]: https://pkg.go.dev/github.com/go-tokenbucket/ratelimit/jwtkey#Keys
	Caches map[string]interface{ Stats() store.CacheStats }

	// KeySecret, if not nil, is a secret of at least 16 bytes. Spans then have the [observe.KeyName] of each key, as the
	// lines of [observe.LogDenials] have with the same secret.
	// Default: spans have no keys. Metrics never have keys.
	KeySecret []byte
}

// An Observer reports what Limiters do to OpenTelemetry. It is safe for concurrent use.
type Observer struct {
	counts *observe.Counts
	caches map[string]interface{ Stats() store.CacheStats }
	secret []byte // nil: spans have no keys
	meter  metric.Meter
	*instruments
	queues    queues
	durations durations

	mu         sync.Mutex // held to change the fields below, and not by callbacks: the SDK holds its own lock around them
	limiters   atomic.Pointer[[]*ratelimit.Limiter]
	registered metric.Registration // nil without limiters
}

// New returns an Observer. Give its method Observe to [ratelimit.Config.Observe], and each Limiter to its method
// Register. New returns an error if KeySecret is too short, or if the MeterProvider does not make the instruments.
func New(cfg Config) (*Observer, error) {
	if n := len(cfg.KeySecret); cfg.KeySecret != nil && n < minSecret {
		return nil, fmt.Errorf("otelratelimit: New: Config.KeySecret has %d bytes: must have at least %d random bytes, or be nil for spans without keys", n, minSecret)
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Counts == nil {
		cfg.Counts = observe.NewCounts(observe.CountsConfig{})
	}
	meter := cfg.MeterProvider.Meter(ScopeName, metric.WithInstrumentationVersion(version()))
	made, err := newInstruments(meter, cfg.Counts.Snapshot().Decisions[0].Took.Bounds)
	if err != nil {
		return nil, fmt.Errorf("otelratelimit: New: %w", err)
	}
	o := &Observer{counts: cfg.Counts, caches: cfg.Caches, secret: slices.Clone(cfg.KeySecret), meter: meter, instruments: made}
	o.limiters.Store(new([]*ratelimit.Limiter))
	return o, nil
}

// version returns the version of this module in the program, "" if it is not known.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == ScopeName && module.Replace == nil {
				return module.Version
			}
		}
	}
	return ""
}

// Observe counts e, and adds it to the span in ctx, if that is recording. It is an observer
// for [ratelimit.Config.Observe]. To have several, use [observe.Join].
func (o *Observer) Observe(ctx context.Context, e *ratelimit.Event) {
	o.counts.Observe(ctx, e)
	decided := decides(e.Op)
	if e.Waited > 0 && decided && o.timeInQueue.Enabled(ctx) {
		o.timeInQueue.Record(ctx, e.Waited.Seconds(), o.queues.of(e)...)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		o.trace(ctx, span, e, decided)
	}
}

// decides reports whether a request or call asked for tokens.
func decides(op string) bool {
	switch op {
	case "peek", "refund", "reset", "block", "unblock", "settle":
		return false
	}
	return true
}

// Register makes the counts and the [ratelimit.Limiter.Stats] of l available to the readers of the MeterProvider. The
// Stats of several Limiters add up, so register only one of those that share a Store. It returns an error if l is
// registered already. Unregister ends it; after the last one, only the histograms of durations go on.
func (o *Observer) Register(l *ratelimit.Limiter) (metric.Registration, error) {
	if l == nil {
		return nil, errors.New("otelratelimit: Register: the Limiter must not be nil")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	limiters := *o.limiters.Load()
	if slices.Contains(limiters, l) {
		return nil, errors.New("otelratelimit: Register: the Limiter is registered already")
	}
	if o.registered == nil {
		r, err := o.meter.RegisterCallback(o.collect, o.observables...)
		if err != nil {
			return nil, fmt.Errorf("otelratelimit: Register: %w", err)
		}
		o.registered = r
	}
	limiters = append(slices.Clip(limiters), l)
	o.limiters.Store(&limiters)
	return &registration{of: o, limiter: l}, nil
}

// A registration is that of a Limiter.
type registration struct {
	embedded.Registration
	of      *Observer
	limiter *ratelimit.Limiter
	once    sync.Once
}

// Unregister ends the registration. Further calls do nothing.
func (r *registration) Unregister() (err error) {
	r.once.Do(func() { err = r.of.unregister(r.limiter) })
	return err
}

func (o *Observer) unregister(l *ratelimit.Limiter) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	limiters := slices.DeleteFunc(slices.Clone(*o.limiters.Load()), func(other *ratelimit.Limiter) bool { return other == l })
	o.limiters.Store(&limiters)
	if len(limiters) > 0 {
		return nil
	}
	registered := o.registered
	o.registered = nil
	return registered.Unregister()
}
