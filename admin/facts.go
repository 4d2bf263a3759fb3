package admin

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/distinct"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	// factsAge is how long facts are kept, however many people look.
	factsAge = time.Second

	// answerWithin bounds the calls of the store for one answer.
	answerWithin = 500 * time.Millisecond

	// maxPolicies and maxTopKeys bound what is shown.
	maxPolicies = 64
	maxTopKeys  = 50

	version = 2
)

// facts are all that the first page shows, and facts.json: a snapshot of one replica, or of all together, and what the
// page makes of it.
type facts struct {
	Version  int      `json:"version"`
	Title    string   `json:"title"`
	Headline headline `json:"headline"`

	Shown    string         `json:"shown"`           // the replica, "" for all together
	Alone    string         `json:"alone,omitempty"` // why only this replica is known
	Replicas []replicaFacts `json:"replicas"`
	More     int            `json:"replicas_left_out"`

	Unreadable int `json:"reports_unreadable"` // of replicas, or written by somebody else

	PerSecond  requestRates `json:"per_second"`
	LimitedNow int          `json:"limited_now"` // keys that were denied in the last seconds

	*fleet.Snapshot
	Policies []policyFacts `json:"policies"`
	Keys     []topKeyFacts `json:"keys"`
	Blocks   []blockFacts  `json:"blocks"`
	Caches   []cacheFacts  `json:"caches"` // of the replica that answers

	HasCounts bool `json:"has_counts"`
	HasTop    bool `json:"has_top"`

	here   fleet.Store     // of the replica that answers
	calls  fleet.Histories // of Redis, as samples.callCounts has them, of the replica that answers
	roster roster
}

// requestRates are rates of about the last ten seconds.
type requestRates struct {
	Requests float64 `json:"requests"`
	Denied   float64 `json:"denied"`
}

// DeniedShare is the part of the requests that is denied.
func (p requestRates) DeniedShare() float64 { return finite(p.Denied / p.Requests) }

// A storeFacts is the state of a store, in words.
type storeFacts struct{ fleet.Store }

// seconds is a duration that is a number of seconds in JSON.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// Name is how the store is called on the page.
func (s storeFacts) Name() string {
	switch s.Kind {
	case "redis":
		return "Redis"
	case "memory":
		return "the memory store"
	}
	return "the store"
}

// Begin is Name at the beginning of a sentence.
func (s storeFacts) Begin() string {
	name := s.Name()
	return strings.ToUpper(name[:1]) + name[1:]
}

// factsCache keeps the facts of all replicas together for factsAge. While they are made, everybody waits for the same ones.
type factsCache struct {
	mu   sync.Mutex
	last *making
}

// A making is facts that are being made, or were.
type making struct {
	done  chan struct{}
	facts *facts // once done is closed
	at    time.Time
}

// made returns the facts, nil while they are made.
func (m *making) made() *facts {
	select {
	case <-m.done:
		return m.facts
	default:
		return nil
	}
}

// facts returns what the page shows of all replicas together, at most factsAge old.
func (h *handler) facts(ctx context.Context) *facts {
	h.cache.mu.Lock()
	m := h.cache.last
	mine := m == nil || m.made() != nil && (time.Since(m.at) >= factsAge || h.member.reader != nil && h.member.reader.Due())
	if mine {
		m = &making{done: make(chan struct{})}
		h.cache.last = m
	}
	h.cache.mu.Unlock()
	if mine {
		defer close(m.done)                                  // also after a panic of somebody's Stats
		m.facts = &facts{Snapshot: new(fleet.Snapshot)}      // for those who wait then
		m.facts = h.newFacts(context.WithoutCancel(ctx), "") // they are for others, too
		m.at = time.Now()
		return m.facts
	}
	<-m.done // within answerWithin
	return m.facts
}

// newFacts returns the facts of a replica, or of all together.
func (h *handler) newFacts(ctx context.Context, shown string) *facts {
	known := h.fleet(ctx)
	f := &facts{
		Version:    version,
		Title:      h.cfg.Title,
		Alone:      known.alone(),
		Replicas:   []replicaFacts{}, // [] rather than null in JSON
		More:       known.More,
		Unreadable: known.Unreadable,
		HasCounts:  h.cfg.Counts != nil,
		HasTop:     h.cfg.Top != nil,
		here:       known.Own.Store,
		roster:     known,
	}
	sum := *known.All
	sum.Store = known.store()
	f.Snapshot = &sum
	for _, r := range known.Replicas {
		f.Replicas = append(f.Replicas, newReplicaFacts(&r))
		if r.Replica == shown {
			one := *r.Snapshot
			f.Shown, f.Snapshot = shown, &one
		}
	}
	f.PerSecond = ratesOf(f.Last)
	f.addPolicies()
	f.addBlocks(ctx, h)
	f.Keys = f.keys(h)
	f.addCaches(h.cfg.Caches)
	if known.Own.Store.Kind == "redis" {
		f.calls = h.member.samples.ofCalls()
	}
	f.LimitedNow = f.limitedNow()
	f.Headline = newHeadline(f)
	return f
}

// ratesOf returns rates from the counts of about the last ten seconds.
func ratesOf(last fleet.Counts) requestRates {
	return requestRates{float64(last.Requests()) / fleet.LastFor.Seconds(), float64(last.Denied+last.Refused) / fleet.LastFor.Seconds()}
}

// limitedNow is how many keys were denied in the last seconds.
func (f *facts) limitedNow() int {
	sketch, err := distinct.Parse(f.Limited)
	if err != nil {
		return 0
	}
	return sketch.Count()
}

// A vital is one of the figures of the headline.
type vital struct{ Name, Value, Unit, Class string }

// Vitals are the figures of the headline.
func (f *facts) Vitals() []vital {
	requests, denied, limited := vital{Name: "Requests", Value: "–"}, vital{Name: "Denied", Value: "–"}, vital{Name: "Clients limited now", Value: "–"}
	if f.HasCounts {
		requests.Value, requests.Unit = rate(f.PerSecond.Requests), "/s"
		denied.Value = numbers.Share(f.PerSecond.DeniedShare())
		denied.Class = classOf(f.PerSecond.Denied == 0, f.deniesMany())
	}
	if f.HasTop {
		limited.Value = numbers.Count(f.LimitedNow)
		limited.Class = classOf(f.LimitedNow == 0, false)
	}
	blocks := vital{Name: "Blocks in force", Value: numbers.Count(len(f.Blocks)), Class: classOf(len(f.Blocks) == 0, false)}
	if f.LeftOut.Blocks > 0 {
		blocks.Value += "+"
	}
	up := len(f.inState(replicaUp)) + len(f.inState(replicaOlder))
	replicas := vital{Name: "Replicas up", Value: numbers.Count(up), Class: classOf(false, up < len(f.Replicas))}
	if n := len(f.Replicas) + f.More; n > 1 {
		replicas.Unit = " of " + numbers.Count(n)
	}
	if f.Alone != "" {
		replicas.Value, replicas.Unit = "this one", ""
		replicas.Class += " word"
	}
	s := storeFacts{f.Store}
	return []vital{requests, denied, limited, blocks, replicas, {Name: s.Begin(), Value: stateWords[f.Store.State], Class: "word " + map[bool]string{true: "good", false: "red"}[f.Store.State == "answers"]}}
}

var stateWords = map[string]string{"answers": "answers", "stand_in": "unavailable", "fails": "unavailable"}

// classOf is how a figure looks.
func classOf(low, high bool) string {
	switch {
	case high:
		return "amber"
	case low:
		return "low"
	}
	return ""
}

func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return logtext.Show(name, maxShown)
}

// failure returns the text of an error of the limiter, for people.
func failure(err error) string {
	switch {
	case errors.Is(err, store.ErrOverloaded):
		return "this process is overloaded"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, errors.ErrUnsupported):
		return "the store does not support it"
	}
	return logtext.Show(strings.TrimPrefix(err.Error(), "ratelimit: "), maxShown)
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// finite returns a number that JSON can hold.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
