package promratelimit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-tokenbucket/ratelimit/observe"
)

var (
	requests = counter("requests",
		"Decisions about requests and calls by policy, route and result: allowed, denied, would_deny (by a Shadow), not_charged (refused for another reason) or refused (by FailClosed, in an outage).",
		"policy", "route", "result")
	degraded = counter("degraded_requests",
		"Decisions that a stand-in for the store made, by policy. They are in ratelimit_requests_total, too.", "policy")

	decisions = counter("decisions",
		"Decisions by outcome: allowed, denied, failed_open, failed_closed, no_key, bad_request, canceled or overloaded.", "outcome")
	decisionDuration = histogram("decision_duration_seconds",
		"Time that decisions took, without the time that requests waited for their tokens or for a slot.", "outcome")
	waitDuration = histogram("wait_duration_seconds",
		"Time that requests waited for their tokens or for a slot, of those that waited.", "outcome")

	operations = counter("operations",
		"Operations that are no decisions: peek, refund, reset, block, unblock, settle and expired (a slot that was lost).", "operation")
	operationErrors = counter("operation_errors",
		"Operations that failed.", "operation")

	settlements = counter("settlements",
		"Requests whose final cost was charged, by policy.", "policy")
	settledEstimated = counter("settlement_estimated_tokens",
		"Tokens that settled requests were charged before they ran, by policy.", "policy")
	settledFinal = counter("settlement_final_tokens",
		"Tokens that settled requests cost in the end, by policy.", "policy")
)

func collectCounts(to chan<- prometheus.Metric, s observe.Snapshot, policies map[string]traits) {
	for _, p := range s.Policies {
		has, known := policies[p.Policy]
		if !known {
			has = traits{enforced: true}
		}
		for _, r := range p.Routes {
			requests.send(to, float64(r.Allowed), p.Policy, r.Route, "allowed")
			if has.enforced || r.Denied > 0 {
				requests.send(to, float64(r.Denied), p.Policy, r.Route, "denied")
			}
			if has.shadow || r.WouldDeny > 0 {
				requests.send(to, float64(r.WouldDeny), p.Policy, r.Route, "would_deny")
			}
			if r.NotCharged > 0 {
				requests.send(to, float64(r.NotCharged), p.Policy, r.Route, "not_charged")
			}
			if r.Refused > 0 {
				requests.send(to, float64(r.Refused), p.Policy, r.Route, "refused")
			}
		}
		degraded.send(to, float64(p.Total().Degraded), p.Policy)
		if has.settles || p.Settlements > 0 {
			settlements.send(to, float64(p.Settlements), p.Policy)
			settledEstimated.send(to, float64(p.Estimated), p.Policy)
			settledFinal.send(to, float64(p.Final), p.Policy)
		}
	}
	for _, d := range s.Decisions {
		decisions.send(to, float64(d.Count), d.Outcome)
		if d.Count > 0 || d.Outcome == "allowed" {
			sendHistogram(to, decisionDuration, d.Took, d.Outcome)
		}
		if d.Waited.Count > 0 || d.Outcome == "allowed" {
			sendHistogram(to, waitDuration, d.Waited, d.Outcome)
		}
	}
	for _, o := range s.Operations {
		operations.send(to, float64(o.Count), o.Op)
		operationErrors.send(to, float64(o.Failed), o.Op)
	}
}

func sendHistogram(to chan<- prometheus.Metric, m metric, h observe.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	below := uint64(0)
	for i, bound := range h.Bounds {
		below += uint64(h.Buckets[i])
		buckets[bound.Seconds()] = below
	}
	series, err := prometheus.NewConstHistogram(m.desc, uint64(h.Count), h.Sum.Seconds(), buckets, labels...)
	if err != nil {
		series = prometheus.NewInvalidMetric(m.desc, err)
	}
	to <- series
}
