package admin

import (
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// latelyFor is the time that the page of a key covers, or one step if steps are longer.
const latelyFor = time.Minute

// A keyLately is what the requests of a key did under a policy, on all replicas that list the key among their busiest ones.
// For is 0 if the first ones came just now.
type keyLately struct {
	For      seconds   `json:"for_seconds"`
	Until    time.Time `json:"until"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
	Replicas int       `json:"replicas"` // that list it
	Of       int       `json:"of_replicas"`

	step  time.Duration
	steps []sparkStep // the newest first
}

// lately returns what a key did under a policy, nil if no replica lists it.
func (h *handler) lately(k roster, policy, key string) *keyLately {
	names := []fleet.Text{fleet.Text(key)}
	if h.cfg.KeySecret != nil {
		names = append(names, fleet.Text(keyname.Secret(h.cfg.KeySecret, key)))
	}
	l := &keyLately{Of: len(k.Replicas) + k.More}
	var own observe.TopKey
	listed := false
	if h.cfg.Top != nil {
		if own, listed = h.cfg.Top.Key(policy, key); listed {
			names = append(names, fleet.Text(own.Key))
			l.addOwn(own.Steps)
		}
	}
	for _, r := range k.Replicas {
		if r.Silent || r.Own && listed {
			continue
		}
		for _, of := range r.Keys {
			if of.Policy == policy && slices.Contains(names, of.Name) {
				l.add(time.Duration(r.KeySteps.Seconds)*time.Second, r.KeySteps.End, of.Requests, of.Denials)
				break
			}
		}
	}
	switch {
	case l.step == 0 && listed:
		return l
	case l.step == 0:
		return nil
	}
	steps := l.steps[:min(len(l.steps), int(max(1, latelyFor/l.step)))]
	l.For = seconds(max(latelyFor, l.step))
	for _, s := range steps {
		l.Requests += s.Requests
		l.Denied += s.Denied
	}
	return l
}

// addOwn adds steps of this process, of which the last one is not over.
func (l *keyLately) addOwn(steps []observe.KeyStep) {
	if len(steps) < 2 {
		return
	}
	last := steps[len(steps)-1].Start
	var requests, denials []int64
	for _, s := range steps[:len(steps)-1] {
		requests, denials = append(requests, s.Requests), append(denials, s.Denied)
	}
	l.add(last.Sub(steps[len(steps)-2].Start).Round(time.Millisecond), last, requests, denials)
}

// add adds the steps of a replica, by how long ago they were. Replicas whose Top has another window are left out.
func (l *keyLately) add(step time.Duration, end time.Time, requests, denials []int64) {
	if step <= 0 || l.step != 0 && l.step != step {
		return
	}
	l.step = step
	l.Replicas++
	if end.After(l.Until) {
		l.Until = end.UTC()
	}
	for before := range max(len(requests), len(denials)) {
		if before == len(l.steps) {
			l.steps = append(l.steps, sparkStep{})
		}
		if i := len(requests) - 1 - before; i >= 0 {
			l.steps[before].Requests += requests[i]
		}
		if i := len(denials) - 1 - before; i >= 0 {
			l.steps[before].Denied += denials[i]
		}
	}
}

// Share is the part of the requests that was denied.
func (l *keyLately) Share() float64 { return finite(float64(l.Denied) / float64(l.Requests)) }

// Spark draws the steps that are known.
func (l *keyLately) Spark() *spark {
	oldestFirst := slices.Clone(l.steps[:min(len(l.steps), 12)])
	slices.Reverse(oldestFirst)
	return newSpark(l.step, oldestFirst)
}

// Where says on which replicas the requests were counted.
func (l *keyLately) Where() string {
	if l.Of == 1 {
		return "this replica"
	}
	return numbers.Count(l.Replicas) + " of " + numbers.Of(int64(l.Of), "replica")
}

// keyless says why it is not known which keys are busy, or "".
func keyless(h *handler, k roster) string {
	switch {
	case len(k.All.Keys) > 0:
		return ""
	case h.cfg.Top == nil:
		return "Requests of single keys are not counted: set admin.Config.Top."
	case k.All.NoKeys:
		return "Replicas do not publish keys, because the store hides them: set admin.Config.KeySecret. It is not among the busiest keys of this replica."
	}
	return ""
}
