package simulate

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A decision is a JSON line about a request and a policy. Cost and Remaining are nil if the policy was not charged, because
// of Error.
type decision struct {
	File           string    `json:"file"`
	Line           int64     `json:"line"`
	Time           time.Time `json:"time"`
	Policy         string    `json:"policy,omitempty"`
	Key            string    `json:"key,omitempty"`
	Allowed        bool      `json:"allowed"`
	RequestAllowed bool      `json:"request_allowed"`
	Shadow         bool      `json:"shadow,omitempty"`
	Error          string    `json:"error,omitempty"`
	Cost           *int64    `json:"cost,omitempty"`
	FinalCost      *int64    `json:"final_cost,omitempty"`
	Remaining      *int64    `json:"remaining,omitempty"`
	Never          bool      `json:"never,omitempty"`
	RetryAfter     float64   `json:"retry_after,omitempty"` // seconds
	Wait           float64   `json:"wait,omitempty"`        // seconds
	Status         int       `json:"status,omitempty"`
}

// write writes what was decided about a line. Its errors are those of the last flush.
func (s *simulation) write(p *passage) {
	line := decision{File: p.file, Line: p.number, Time: timeOf(p.time), Status: p.answer.response.Status}
	for i := range p.refusals {
		refused, of := &p.refusals[i], line
		if refused.policy >= 0 {
			of.Policy = s.setup.policies[refused.policy].Name
		}
		of.Allowed, of.RequestAllowed, of.Error = refused.passed, refused.passed, refused.kind()
		_ = s.encoder.Encode(&of)
	}
	for i := range p.outcomes {
		o, of := &p.outcomes[i], line
		of.Policy, of.Key = o.Policy, s.name(o.Key)
		of.Allowed, of.RequestAllowed, of.Shadow = o.Allowed, o.passed, o.Shadow
		of.Cost, of.Remaining, of.Wait = &o.Cost, &o.Remaining, o.Wait.Seconds()
		if o.final != o.Cost {
			of.FinalCost = &o.final
		}
		if of.Never = o.RetryAfter == store.Never; !of.Never {
			of.RetryAfter = o.RetryAfter.Seconds()
		}
		_ = s.encoder.Encode(&of)
	}
}
