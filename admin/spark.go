package admin

import (
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// A spark draws the last requests of a key as bars. The denied part of a bar is at its top.
type spark struct {
	Label string // for those who do not see it
	Width int
	Bars  []bar
}

type bar struct {
	X                          int
	Y, Height, DeniedY, Denied string
}

// A sparkStep is what a key did in one step.
type sparkStep struct{ Requests, Denied int64 }

// newSpark draws steps, the oldest first.
func newSpark(step time.Duration, steps []sparkStep) *spark {
	s := &spark{Width: max(1, 4*len(steps))}
	var requests, denied int64
	most := int64(1)
	if len(steps) > 0 {
		most = max(most, slices.MaxFunc(steps, func(a, b sparkStep) int { return int(a.Requests - b.Requests) }).Requests)
	}
	for i, of := range steps {
		requests, denied = requests+of.Requests, denied+of.Denied
		height := 20 * float64(of.Requests) / float64(most)
		red := 20 * float64(min(of.Denied, of.Requests)) / float64(most)
		b := bar{X: 4 * i, Y: number(20 - height), Height: number(height), DeniedY: number(20 - height)}
		if of.Denied > 0 {
			b.Denied = number(red)
		}
		s.Bars = append(s.Bars, b)
	}
	s.Label = numbers.Of(requests, "request") + " in " + span(step*time.Duration(len(steps))) + ", " + numbers.Count(denied) + " denied"
	return s
}
