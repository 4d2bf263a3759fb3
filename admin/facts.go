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

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
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
	f.addParts(stats)
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

// finite returns a number that JSON can hold.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
