package admin

import (
	"time"

	"github.com/go-tokenbucket/ratelimit/observe"
)

type rates struct {
	Allowed   float64 `json:"allowed"`
	Denied    float64 `json:"denied"`
	WouldDeny float64 `json:"would_deny"`
}

// history is the last ten minutes in steps, oldest first. The last step is the last one that is over.
type history struct {
	Step      seconds   `json:"step_seconds"`
	Until     time.Time `json:"until"`
	Allowed   []int64   `json:"allowed"`
	Denied    []int64   `json:"denied"`
	WouldDeny []int64   `json:"would_deny"`
}

// rateSteps is over how many steps a rate is taken: 10 s.
const rateSteps = 2

// newHistory returns the history of steps, without the one that is not over.
func newHistory(steps []observe.Step) (*history, *rates) {
	if len(steps) < 2 {
		return nil, nil
	}
	step := steps[1].Start.Sub(steps[0].Start)
	if step <= 0 {
		return nil, nil
	}
	over := steps[:len(steps)-1]
	h := &history{Step: seconds(step), Until: steps[len(over)].Start}
	for _, s := range over {
		h.Allowed = append(h.Allowed, s.Allowed)
		h.Denied = append(h.Denied, s.Denied)
		h.WouldDeny = append(h.WouldDeny, s.WouldDeny)
	}
	return h, &rates{lately(h.Allowed, step), lately(h.Denied, step), lately(h.WouldDeny, step)}
}

func lately(counts []int64, step time.Duration) float64 {
	n := min(rateSteps, len(counts))
	var sum int64
	for _, c := range counts[len(counts)-n:] {
		sum += c
	}
	return float64(sum) / (float64(n) * step.Seconds())
}
