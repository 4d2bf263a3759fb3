package otelratelimit

import (
	"context"
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"github.com/go-tokenbucket/ratelimit/observe"
)

// metrics lists the instruments in tables: name, kind, unit, description and attributes.
//
//go:embed METRICS.md
var metrics string

// makeInstruments makes the instruments, and registers the callback of those that one observes. The histograms have the
// bounds of package observe.
func (o *Observer) makeInstruments(meter metric.Meter, like observe.DecisionCounts) (faults error) {
	observed := make(map[string]metric.Observable)
	for row := range strings.Lines(strings.ReplaceAll(metrics, "`", "")) {
		cells := strings.Split(row, " | ")
		name, isMetric := strings.CutPrefix(cells[0], "| ")
		if !isMetric || !strings.HasPrefix(name, "ratelimit.") {
			continue
		}
		unit, description := metric.WithUnit(cells[2]), metric.WithDescription(cells[3])
		var err error
		switch {
		case name == "ratelimit.decision.duration":
			o.duration, err = meter.Float64Histogram(name, unit, description, boundsOf(like.Took))
		case name == "ratelimit.request.time_in_queue":
			o.timeInQueue, err = meter.Float64Histogram(name, unit, description, boundsOf(like.Waited))
		case cells[1] == "gauge":
			observed[name], err = meter.Float64ObservableGauge(name, unit, description)
		case cells[1] == "counter":
			observed[name], err = meter.Int64ObservableCounter(name, unit, description)
		case cells[1] == "level":
			observed[name], err = meter.Int64ObservableUpDownCounter(name, unit, description)
		}
		faults = errors.Join(faults, err)
	}
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		o.collect(observer{to, observed})
		return nil
	}, slices.Collect(maps.Values(observed))...)
	return errors.Join(faults, err)
}

func boundsOf(h observe.Histogram) metric.HistogramOption {
	var seconds []float64
	for _, bound := range h.Bounds {
		seconds = append(seconds, bound.Seconds())
	}
	return metric.WithExplicitBucketBoundaries(seconds...)
}
