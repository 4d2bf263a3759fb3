package admin

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/observe"
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

	version = 1
)

// seconds is a duration that is a number of seconds in JSON.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// facts are all that the first page shows, and facts.json.
type facts struct {
	Version int          `json:"version"`
	Title   string       `json:"title"`
	At      time.Time    `json:"at"`
	Host    string       `json:"host"`
	Started time.Time    `json:"started"` // when the handler was made
	Store   storeFacts   `json:"store"`
	Traffic trafficFacts `json:"traffic"`

	Policies        []policyFacts `json:"policies"`
	PoliciesLeftOut int           `json:"policies_left_out"`

	Waiting    int `json:"waiting"`
	MaxWaiting int `json:"max_waiting"`

	Redis    *redisFacts    `json:"redis"`
	Fallback *fallbackFacts `json:"fallback"`
	Denials  *denialFacts   `json:"denials"`
	Leases   *leaseFacts    `json:"leases"`
	Memory   *memoryFacts   `json:"memory"`
	Caches   []cacheFacts   `json:"caches"`

	Top *topFacts `json:"top"` // of all policies together

	HasCounts bool `json:"has_counts"`
}

// storeFacts say whether the store answers now.
type storeFacts struct {
	Kind  string  `json:"kind"`  // "redis", "memory" or "other"
	State string  `json:"state"` // "answers", "stand_in" or "fails"
	Took  seconds `json:"took_seconds"`

	Since  *time.Time `json:"since,omitempty"`  // since when a stand-in decides
	Reason string     `json:"reason,omitempty"` // for people
}

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

// trafficFacts are the counts of requests, whatever their policies.
type trafficFacts struct {
	Decisions  map[string]int64 `json:"decisions"`
	Operations map[string]int64 `json:"operations"`
}

// policyFacts are a policy and what it decided in this process.
type policyFacts struct {
	Name       string  `json:"name"`
	Limit      string  `json:"limit"` // "" if LimitFunc alone chooses it
	LimitFunc  bool    `json:"limit_func"`
	Shadow     bool    `json:"shadow"`
	Hidden     bool    `json:"hidden"`
	FailClosed bool    `json:"fail_closed"`
	Optional   bool    `json:"optional"`
	Settles    bool    `json:"settles"`
	MaxWait    seconds `json:"max_wait_seconds"`
	LockFor    seconds `json:"lock_for_seconds"`
	Mounted    bool    `json:"mounted"` // requests have it

	Counts *policyCounts `json:"counts"`

	limit ratelimit.Limit
}

// policyCounts are what a policy decided since the process started, and lately.
type policyCounts struct {
	Allowed    int64 `json:"allowed"`
	Denied     int64 `json:"denied"`
	WouldDeny  int64 `json:"would_deny"`
	NotCharged int64 `json:"not_charged"`
	Degraded   int64 `json:"degraded"`

	Settlements int64 `json:"settlements"`
	Estimated   int64 `json:"settled_estimated"`
	Final       int64 `json:"settled_final"`

	// Rates are per second, over the last whole steps of the history.
	Rates   *rates   `json:"per_second"`
	History *history `json:"history"`

	unused bool
}

// Unused reports whether there was no request so far.
func (p *policyCounts) Unused() bool { return p.unused }

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

// factsCache keeps facts for factsAge. While they are made, everybody waits for the same ones.
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

// facts returns what the page shows, at most factsAge old.
func (h *handler) facts(ctx context.Context) *facts {
	h.cache.mu.Lock()
	m := h.cache.last
	mine := m == nil || m.made() != nil && time.Since(m.at) >= factsAge
	if mine {
		m = &making{done: make(chan struct{})}
		h.cache.last = m
	}
	h.cache.mu.Unlock()
	if mine {
		defer close(m.done)                              // also after a panic of somebody's Stats
		m.facts = &facts{}                               // for those who wait then
		m.facts = h.newFacts(context.WithoutCancel(ctx)) // they are for others, too
		m.at = time.Now()
		return m.facts
	}
	<-m.done // within answerWithin
	return m.facts
}

func (h *handler) newFacts(ctx context.Context) *facts {
	stats := h.limiter.Stats()
	f := &facts{
		Version:    version,
		Title:      h.cfg.Title,
		At:         time.Now().UTC(),
		Host:       host(),
		Started:    h.started.UTC(),
		Waiting:    stats.Waiting,
		MaxWaiting: stats.MaxWaiting,
		HasCounts:  h.cfg.Counts != nil,
	}
	f.addPolicies(h)
	f.addParts(stats, h.samples.history())
	f.addCaches(h.cfg.Caches)
	f.Store = h.storeFacts(ctx, stats)
	if h.cfg.Top != nil {
		f.Top = h.topOfAll()
	}
	return f
}

func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return logtext.Show(name, maxShown)
}

// storeFacts looks into a bucket, as a request would, and changes nothing.
func (h *handler) storeFacts(ctx context.Context, stats store.Stats) storeFacts {
	s := storeFacts{Kind: "other", State: "answers"}
	switch {
	case stats.Redis != nil:
		s.Kind = "redis"
	case stats.Memory != nil:
		s.Kind = "memory"
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	name := "admin"
	if known := h.policies(); len(known) > 0 {
		name = known[0].Name
	}
	began := time.Now()
	r, err := h.limiter.Peek(ctx, ratelimit.Policy{Name: name, Limit: ratelimit.PerSecond(1)}, "admin:look")
	s.Took = seconds(time.Since(began).Round(time.Microsecond))
	switch away := stats.Fallback != nil && stats.Fallback.Away; {
	case err != nil:
		s.State, s.Reason = "fails", failure(err)
	case r.Degraded || away:
		s.State = "stand_in"
	}
	if f := stats.Fallback; f != nil && f.Away && s.State != "answers" {
		s.Since, s.Reason = utc(f.Since), logtext.Show(f.Reason, maxShown)
	}
	return s
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

// policies returns all policies that the page knows: those that requests have, those of Config.Policies, and those
// that were counted. A change is possible for all of them.
func (h *handler) policies() []ratelimit.Policy {
	all := slices.Concat(h.limiter.Policies(), h.cfg.Policies)
	for _, c := range h.snapshot().Policies {
		all = append(all, ratelimit.Policy{Name: c.Policy})
	}
	seen := map[string]bool{"": true, "_other": true}
	return slices.DeleteFunc(all, func(p ratelimit.Policy) bool {
		was := seen[p.Name]
		seen[p.Name] = true
		return was
	})
}

// A snapshotCache keeps the counts for factsAge. With many routes they are large.
type snapshotCache struct {
	mu    sync.Mutex
	taken time.Time
	kept  observe.Snapshot
}

// snapshot returns the counts, at most factsAge old, or none without Config.Counts.
func (h *handler) snapshot() observe.Snapshot {
	if h.cfg.Counts == nil {
		return observe.Snapshot{}
	}
	h.counted.mu.Lock()
	defer h.counted.mu.Unlock()
	if time.Since(h.counted.taken) >= factsAge {
		h.counted.kept, h.counted.taken = h.cfg.Counts.Snapshot(), time.Now()
	}
	return h.counted.kept
}

func (f *facts) addPolicies(h *handler) {
	counts := make(map[string]observe.PolicyCounts)
	if h.cfg.Counts != nil {
		snapshot := h.snapshot()
		for _, c := range snapshot.Policies {
			counts[c.Policy] = c
		}
		f.Traffic = trafficFacts{make(map[string]int64), make(map[string]int64)}
		for _, d := range snapshot.Decisions {
			f.Traffic.Decisions[d.Outcome] = d.Count
		}
		for _, o := range snapshot.Operations {
			f.Traffic.Operations[o.Op] = o.Count
		}
	}
	mounted := make(map[string]bool)
	for _, p := range h.limiter.Policies() {
		mounted[p.Name] = true
	}
	f.Policies = []policyFacts{} // [] rather than null in JSON
	for _, p := range h.policies() {
		if len(f.Policies) == maxPolicies {
			f.PoliciesLeftOut++
			continue
		}
		facts := policyFacts{
			Name:       p.Name,
			LimitFunc:  p.LimitFunc != nil,
			Shadow:     p.Shadow,
			Hidden:     p.Hidden,
			FailClosed: p.FailClosed,
			Optional:   p.Optional,
			Settles:    p.Settle != nil,
			MaxWait:    seconds(p.MaxWait),
			LockFor:    seconds(p.LockFor),
			Mounted:    mounted[p.Name],
			limit:      p.Limit,
		}
		if p.Limit != (ratelimit.Limit{}) {
			facts.Limit = p.Limit.String()
		}
		if c, ok := counts[p.Name]; ok {
			total := c.Total()
			facts.Counts = &policyCounts{
				Allowed: total.Allowed, Denied: total.Denied, WouldDeny: total.WouldDeny, NotCharged: total.NotCharged, Degraded: total.Degraded,
				Settlements: c.Settlements, Estimated: c.Estimated, Final: c.Final,
			}
			facts.Counts.History, facts.Counts.Rates = newHistory(c.History)
		} else if h.cfg.Counts != nil {
			facts.Counts = &policyCounts{unused: true}
		}
		f.Policies = append(f.Policies, facts)
	}
}

// finite returns a number that JSON can hold.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
