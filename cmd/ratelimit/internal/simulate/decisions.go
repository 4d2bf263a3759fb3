package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/keyhash"
	"github.com/go-tokenbucket/ratelimit/store"
)

// decisions writes a JSON line for each request and policy.
type decisions struct {
	to      *bufio.Writer
	encoder *json.Encoder
}

func newDecisions(w io.Writer) *decisions {
	to := bufio.NewWriter(w)
	return &decisions{to, json.NewEncoder(to)}
}

// A decision is a line. Cost and Remaining are nil if the policy was not charged, because of Error.
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

func (d *decisions) flush() error {
	if d == nil {
		return nil
	}
	return wrap(d.to.Flush())
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("simulate: decisions: %w", err)
	}
	return nil
}

// write writes what was decided about a line.
func (d *decisions) write(s *simulation, p *passage) error {
	line := decision{File: s.cfg.Logs[p.file].Name, Line: p.number, Time: timeOf(p.time), Status: p.answer.status}
	for i := range p.refusals {
		refused, of := &p.refusals[i], line
		if refused.policy >= 0 {
			of.Policy = s.setup.policies[refused.policy].Name
		}
		of.Allowed, of.RequestAllowed, of.Error = refused.passed, refused.passed, refused.kind()
		if err := d.encoder.Encode(&of); err != nil {
			return wrap(err)
		}
	}
	for i := range p.outcomes {
		o, of := &p.outcomes[i], line
		of.Policy, of.Key = s.setup.policies[o.policy].Name, o.key
		if s.secret != nil {
			of.Key = keyhash.Name(s.secret, short(o.key))
		}
		of.Allowed, of.RequestAllowed, of.Shadow = o.allowed, o.passed, o.shadow
		of.Cost, of.Remaining = &o.cost, &o.remaining
		if o.final != o.cost {
			of.FinalCost = &o.final
		}
		if of.Never = o.retryAfter == store.Never; !of.Never {
			of.RetryAfter = o.retryAfter.Seconds()
		}
		of.Wait = o.wait.Seconds()
		if err := d.encoder.Encode(&of); err != nil {
			return wrap(err)
		}
	}
	return nil
}
