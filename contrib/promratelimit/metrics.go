package promratelimit

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// A metric is a family of series.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// all are the metrics in the order in which they are declared.
var all []metric

// counter declares a counter, whose name ends in _total.
func counter(name, help string, labels ...string) metric {
	return declare(prometheus.CounterValue, name+"_total", help, labels)
}

func gauge(name, help string, labels ...string) metric {
	return declare(prometheus.GaugeValue, name, help, labels)
}

func histogram(name, help string, labels ...string) metric {
	return declare(prometheus.UntypedValue, name, help, labels)
}

func declare(kind prometheus.ValueType, name, help string, labels []string) metric {
	m := metric{prometheus.NewDesc("ratelimit_"+name, help, labels, nil), kind}
	all = append(all, m)
	return m
}

// send sends a series with these values of the labels.
func (m metric) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD")
	}
	series, err := prometheus.NewConstMetric(m.desc, m.kind, value, labels...)
	if err != nil {
		series = prometheus.NewInvalidMetric(m.desc, err)
	}
	to <- series
}
