package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// The most keys and blocks that a replica publishes, and the steps of a key.
const (
	publishedKeys   = 20 // with the most requests, and as many with the most denials
	publishedBlocks = 20
	publishedSteps  = 12
	maxKinds        = 16
)

// publishWithin bounds how long a snapshot takes to be published.
const publishWithin = time.Second

// A member is this replica in the fleet. A timer publishes it, also while nobody looks, and ends when the handler is no
// longer used. No request waits for it.
type member struct {
	name    string
	reader  *fleet.Reader // nil: the store shares no values with other processes
	samples samples

	taking sync.Mutex // guards own, and is held while a snapshot is taken for the page
	own    *fleet.Snapshot

	mu        sync.Mutex      // guards what follows
	kinds     []string        // of all keys that were met
	published *fleet.Snapshot // the last one that others can read
	failed    error           // why the last one could not be published
}

// newMember makes h a member of the fleet, and begins to publish it.
func newMember(h *handler) {
	h.member = &member{name: replicaName(h.limiter)}
	var publisher *fleet.Publisher
	if values, ok := h.limiter.Store().(store.Values); ok && h.limiter.Stats().Memory == nil {
		h.member.reader = fleet.NewReader(values, h.cfg.KeySecret)
		publisher = fleet.NewPublisher(values, h.member.name)
	}
	publishNext(weak.Make(h), publisher, 0)
}

func publishNext(w weak.Pointer[handler], publisher *fleet.Publisher, in time.Duration) {
	time.AfterFunc(in, func() {
		if h := w.Value(); h != nil {
			h.publish(publisher)
			publishNext(w, publisher, untilNext(h.member.name))
		}
	})
}

// untilNext returns how long it is until a replica publishes again. The times are multiples of fleet.Every, so that steps of
// the history are equally long, and others for each replica, so that not all publish at once.
func untilNext(replica string) time.Duration {
	turn := maphash.String(processSeed, replica) % uint64(fleet.Every)
	return fleet.Every - time.Duration((uint64(time.Now().UnixNano())+turn)%uint64(fleet.Every))
}

// publish takes a sample and a snapshot of h. If that fails, other replicas see that this one is silent.
func (h *handler) publish(publisher *fleet.Publisher) {
	defer func() { // in the goroutine of a timer, a panic of somebody's Store would end the process
		if panicked := recover(); panicked != nil {
			h.logger().LogAttrs(context.Background(), slog.LevelError, "ratelimit: admin publishing panicked", slog.String("panic", logtext.Show(fmt.Sprint(panicked), maxShown)))
		}
	}()
	var counted observe.Snapshot
	if h.cfg.Counts != nil {
		counted = h.cfg.Counts.Snapshot()
	}
	h.member.samples.take(counted, h.limiter.Stats(), time.Now())
	if publisher == nil {
		return
	}
	taken := h.takeSnapshot(counted)
	s := *taken
	switch {
	case h.cfg.KeySecret != nil:
		s.Seal(h.cfg.KeySecret)
	case s.NoKeys:
		s.Keys, s.Blocks = nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), publishWithin)
	defer cancel()
	err := publisher.Publish(ctx, &s)
	h.member.mu.Lock()
	defer h.member.mu.Unlock()
	if h.member.failed = err; err == nil {
		h.member.published = taken
	}
}

var (
	processSeed  = maphash.MakeSeed()
	notInReplica = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// replicaName returns the name of a Limiter among those of all processes.
func replicaName(l *ratelimit.Limiter) string {
	name := notInReplica.ReplaceAllString(host(), "-")
	return fmt.Sprintf("%.60s-%08x", name, uint32(maphash.Comparable(processSeed, l)))
}

// release returns the version of the program, and when it was committed.
var release = sync.OnceValues(func() (name string, built time.Time) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", time.Time{}
	}
	if name = info.Main.Version; name == "(devel)" {
		name = ""
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if name == "" {
				name = s.Value[:min(12, len(s.Value))]
			}
		case "vcs.time":
			built, _ = time.Parse(time.RFC3339, s.Value)
		}
	}
	return logtext.Show(name, maxShown), built
})

// A roster is what is known of the fleet.
type roster struct {
	fleet.Fleet                 // all replicas, also this one
	Own         *fleet.Snapshot // this replica
	All         *fleet.Snapshot // all of them together
	Shared      bool            // the store shares snapshots of replicas
	Err         error           // why those of others are not known; the fleet is then this replica alone
}

// fleet returns all replicas. It waits for the store a short time at most.
func (h *handler) fleet(ctx context.Context) roster {
	k := roster{Own: h.own(), Shared: h.member.reader != nil}
	if k.Shared {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		if k.Own.Store.State != "answers" {
			cancel() // what is read would come late, if at all
		}
		k.Fleet, k.Err = h.member.reader.Fleet(ctx)
		k.Shared = !errors.Is(k.Err, errors.ErrUnsupported)
	}
	if h.member.mu.Lock(); k.Err == nil && len(k.Replicas) == 0 { // nobody can publish, or this replica begins
		k.Err = h.member.failed
	}
	h.member.mu.Unlock()
	k.Fleet = k.Fleet.With(h.ownAmong(k))
	k.All = k.Merged()
	return k
}

// ownAmong returns this replica as others see it, so that sums never go down where a load balancer sends each request of a
// page to another replica. Its store is as it is now. Alone, or if others do not see it, all of it is.
func (h *handler) ownAmong(k roster) *fleet.Snapshot {
	h.member.mu.Lock()
	defer h.member.mu.Unlock()
	if p := h.member.published; p != nil && k.Err == nil && len(k.Replicas) > 1 && k.Own.At.Sub(p.At) < fleet.SilentAfter {
		own := *p
		own.Store = k.Own.Store
		return &own
	}
	return k.Own
}

// own returns this replica, at most factsAge old. Nobody may change it.
func (h *handler) own() *fleet.Snapshot {
	m := h.member
	m.taking.Lock()
	defer m.taking.Unlock()
	if m.own == nil || time.Since(m.own.At) >= factsAge {
		m.own = h.takeSnapshot(h.snapshot())
	}
	return m.own
}

// takeSnapshot returns what this replica has counted.
func (h *handler) takeSnapshot(counted observe.Snapshot) *fleet.Snapshot {
	stats := h.limiter.Stats()
	s := &fleet.Snapshot{
		Replica: h.member.name, Host: host(), Started: h.started.UTC(), At: time.Now().UTC(),
		Store:     h.storeSnapshot(stats),
		Overrides: h.overridesSnapshot(),
		Engine:    engineCounts(stats),
	}
	s.Release, s.Built = release()
	h.member.samples.fill(s)
	s.Traffic, s.Operations = make(map[string]int64), make(map[string]int64)
	for _, d := range counted.Decisions {
		s.Traffic[d.Outcome] = d.Count
	}
	for _, o := range counted.Operations {
		s.Operations[o.Op] = o.Count
	}
	policies := slices.DeleteFunc(h.policiesIn(counted), func(p ratelimit.Policy) bool { return !policyname.Valid(p.Name) })
	s.LeftOut.Policies = max(0, len(policies)-maxPolicies)
	policies = policies[:min(maxPolicies, len(policies))]
	s.Policies = h.policySnapshots(policies, counted, stats)
	if h.cfg.Top != nil {
		s.NoKeys = stats.Redis != nil && stats.Redis.Secret && h.cfg.KeySecret == nil
		h.addKeys(s, policies)
	}
	s.Settle()
	return s
}

// storeSnapshot looks into a bucket, as a request would, and changes nothing.
func (h *handler) storeSnapshot(stats store.Stats) (s fleet.Store) {
	s = fleet.Store{Kind: "other", State: "answers"}
	defer func() { // in the goroutine of a timer, a panic of somebody's Store would end the process
		if panicked := recover(); panicked != nil {
			s.State, s.Reason = "fails", "the store panicked"
			h.logger().LogAttrs(context.Background(), slog.LevelError, "ratelimit: admin look panicked", slog.String("panic", logtext.Show(fmt.Sprint(panicked), maxShown)))
		}
	}()
	switch {
	case stats.Redis != nil:
		s.Kind = "redis"
		s.LastError, s.LastErrorAt = logtext.Show(stats.Redis.LastError, maxShown), stats.Redis.LastErrorAt.UTC()
	case stats.Memory != nil:
		s.Kind = "memory"
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	began := time.Now()
	b, err := store.Inspect(ctx, h.limiter.Store(), "admin", "admin:look")
	if errors.Is(err, errors.ErrUnsupported) { // a Store that can only take
		r, failed := h.limiter.Peek(ctx, ratelimit.Policy{Name: "admin", Limit: ratelimit.PerSecond(1)}, "admin:look")
		b.Degraded, err = r.Degraded, failed
	}
	s.Took = fleet.Millis(time.Since(began).Milliseconds())
	f := h.limiter.Stats().Fallback // after the look, which may have found the outage
	switch away := f != nil && f.Away; {
	case err != nil:
		s.State, s.Reason = "fails", failure(err)
	case b.Degraded || away:
		s.State = "stand_in"
	}
	if f == nil {
		return s
	}
	if f.Away && s.State != "answers" {
		s.Since, s.Reason = f.Since.UTC(), logtext.Show(f.Reason, maxShown)
	}
	for _, o := range f.Outages[:min(3, len(f.Outages))] {
		s.Outages = append(s.Outages, fleet.Outage{Since: o.Since.UTC(), Until: o.Until, Reason: logtext.Show(o.Reason, maxShown), Answered: o.Answered, Charged: o.Charged})
	}
	return s
}

// overridesSnapshot says which overrides this replica has.
func (h *handler) overridesSnapshot() (o fleet.Overrides) {
	if h.cfg.Overrides == nil {
		return o
	}
	o.Count, o.Changed = h.cfg.Overrides.InForce()
	o.Problem = h.cfg.Overrides.Problem()
	return o
}

// engineCounts returns the counts of the store by the names that fleet.Snapshot.Engine lists.
func engineCounts(stats store.Stats) map[string]int64 {
	counts := map[string]int64{"waiting": int64(stats.Waiting), "max_waiting": int64(stats.MaxWaiting)}
	add := func(name string, n int64) { counts[name] += n }
	if r := stats.Redis; r != nil {
		add("calls", r.Calls)
		add("batches", r.Batches)
		add("charges", r.Charges)
		add("merged", r.Merged)
		add("direct", r.Direct)
		add("failed", sum(r.Errors))
		for kind, n := range r.Errors {
			if n > 0 {
				add("failed_"+kind, n)
			}
		}
		add("redirects", r.Redirects)
		add("script_loads", r.ScriptLoads)
		add("queued", int64(r.Queued))
		add("in_flight", int64(r.InFlight))
	}
	memory := stats.Memory
	if f := stats.Fallback; f != nil {
		add("probes", f.Probes)
		add("answered", f.Answered)
		add("charged", f.Charged)
		add("pending", int64(f.Pending))
		memory = cmp.Or(memory, f.Secondary.Memory)
	}
	if d := stats.Denials; d != nil {
		add("denials_answered", d.Answered)
		add("denials_kept", int64(d.Kept))
	}
	if l := stats.Leases; l != nil {
		add("leases", int64(l.Leases))
		add("leased_tokens", l.Held)
	}
	if memory != nil {
		add("buckets", int64(memory.Buckets))
		add("blocked", int64(memory.Blocked))
		add("evicted", sum(memory.Evicted))
	}
	for name, n := range counts {
		counts[name] = max(0, n) // levels are read while they change
	}
	return counts
}

// policySnapshots returns the policies that the page shows.
func (h *handler) policySnapshots(policies []ratelimit.Policy, counted observe.Snapshot, stats store.Stats) (list []fleet.Policy) {
	counts := make(map[string]observe.PolicyCounts)
	for _, c := range counted.Policies {
		counts[c.Policy] = c
	}
	programs := h.limiter.ProgramLimits()
	for _, p := range policies {
		c := counts[p.Name]
		total := c.Total()
		policy := fleet.Policy{
			Name:       p.Name,
			LimitFunc:  p.LimitFunc != nil,
			Shadow:     p.Shadow,
			Hidden:     p.Hidden,
			FailClosed: p.FailClosed,
			Optional:   p.Optional,
			Settles:    p.Settle != nil,
			MaxWait:    fleet.Millis(p.MaxWait.Milliseconds()),
			LockFor:    fleet.Millis(p.LockFor.Milliseconds()),
			Unmounted:  programs[p.Name] == nil,
			Held:       heldSlots(stats, p.Name),

			Total:       fleet.Counts{Allowed: total.Allowed, Denied: total.Denied, WouldDeny: total.WouldDeny, NotCharged: total.NotCharged, Refused: total.Refused, Degraded: total.Degraded},
			Last:        lastCounts(c.History),
			History:     fleet.Histories{TenMinutes: historyOf(c.History, spanSteps[0]), Hour: historyOf(c.Hour, spanSteps[1]), SixHours: historyOf(c.SixHours, spanSteps[2])},
			Settlements: c.Settlements, Estimated: c.Estimated, Final: c.Final,
		}
		if p.Limit != (ratelimit.Limit{}) {
			policy.Limit = p.Limit.String()
		}
		if own := programs[p.Name]; len(own) > 0 && !slices.Contains(own, p.Limit) {
			policy.Program = cmp.Or(own[0].String(), "a LimitFunc")
		}
		list = append(list, policy)
	}
	return list
}

// heldSlots returns how many slots of a policy this replica holds, with those of a stand-in.
func heldSlots(stats store.Stats, policy string) (held int64) {
	if stats.Slots != nil {
		held = stats.Slots.Held[policy]
	}
	if f := stats.Fallback; f != nil && f.Secondary.Slots != nil {
		held += f.Secondary.Slots.Held[policy]
	}
	return held
}

// lastCounts returns the counts of the last two steps that are over, which are 10 s.
func lastCounts(steps []observe.Step) (last fleet.Counts) {
	for i := max(0, len(steps)-3); i < len(steps)-1; i++ {
		last.Allowed += steps[i].Allowed
		last.Denied += steps[i].Denied
		last.WouldDeny += steps[i].WouldDeny
		last.Refused += steps[i].Refused
	}
	return last
}

// historyOf returns the steps that are over, as longer steps.
func historyOf(steps []observe.Step, length time.Duration) *fleet.History {
	if len(steps) == 0 {
		return nil
	}
	h := fleet.NewHistory(steps[len(steps)-1].Start, length)
	for _, s := range steps {
		h.Add(s.Start, fleet.Counts{Allowed: s.Allowed, Denied: s.Denied, WouldDeny: s.WouldDeny, Refused: s.Refused})
	}
	return h
}

// addKeys adds the keys with the most requests and the most denials.
func (h *handler) addKeys(s *fleet.Snapshot, policies []ratelimit.Policy) {
	var requests, denied []fleet.Key
	for _, p := range policies {
		requests = appendKeys(requests, p.Name, h.cfg.Top.Heaviest(p.Name, publishedKeys), &s.KeySteps)
		denied = appendKeys(denied, p.Name, h.cfg.Top.Denied(p.Name, publishedKeys), &s.KeySteps)
	}
	s.Kinds = h.member.meet(requests, denied)
	if limited := h.cfg.Top.Limited(); limited.Count() > 0 {
		s.Limited = limited.String()
	}
	for _, b := range h.cfg.Top.Blocked() {
		if len(s.Blocks) == publishedBlocks {
			s.LeftOut.Blocks++
			continue
		}
		s.Blocks = append(s.Blocks, fleet.Block{Policy: b.Policy, Name: fleet.Text(b.Key), Until: b.Until.UTC()})
	}
	slices.SortStableFunc(requests, func(a, b fleet.Key) int { return cmp.Compare(b.Count-b.Error, a.Count-a.Error) })
	slices.SortStableFunc(denied, func(a, b fleet.Key) int { return cmp.Compare(b.Denied-b.Error, a.Denied-a.Error) })
	requests, denied = published(requests), published(denied)
	listed := make(map[fleet.Text]bool)
	for i := range max(len(requests), len(denied)) { // the first of both first, because the last may be left out
		for _, list := range [][]fleet.Key{requests, denied} {
			if i < len(list) && !listed[fleet.Text(list[i].Policy)+" "+list[i].Name] {
				listed[fleet.Text(list[i].Policy)+" "+list[i].Name] = true
				s.Keys = append(s.Keys, list[i])
			}
		}
	}
}

// published returns the keys of a sorted list that are published: the first one of each policy, and then the first ones. So a
// flood under one policy does not hide who is denied under another one.
func published(keys []fleet.Key) []fleet.Key {
	var first, others []fleet.Key
	met := make(map[string]bool)
	for _, k := range keys {
		if !met[k.Policy] && len(first) < publishedKeys/2 {
			met[k.Policy] = true
			first = append(first, k)
		} else {
			others = append(others, k)
		}
	}
	return append(first, others[:min(publishedKeys-len(first), len(others))]...)
}

// appendKeys appends the keys of a list, and notes how their steps divide time.
func appendKeys(keys []fleet.Key, policy string, list observe.TopList, steps *fleet.Steps) []fleet.Key {
	for _, k := range list.Keys {
		key := fleet.Key{Policy: policy, Name: fleet.Text(k.Key), Count: max(0, k.Requests), Denied: max(0, k.Denied), Error: max(0, k.Error)}
		if n := len(k.Steps); n > 1 {
			last := k.Steps[n-1].Start // that is not over
			length := last.Sub(k.Steps[n-2].Start).Round(time.Millisecond)
			if length > 0 && length%time.Second == 0 { // as all windows but odd ones have
				*steps = fleet.Steps{Seconds: int(length / time.Second), End: last.UTC()}
				for _, step := range k.Steps[max(0, n-1-publishedSteps) : n-1] {
					key.Requests, key.Denials = append(key.Requests, step.Requests), append(key.Denials, step.Denied)
				}
			}
		}
		keys = append(keys, key)
	}
	return keys
}

// meet notes the kinds of keys, and returns all that were met.
func (m *member) meet(lists ...[]fleet.Key) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Concat(lists...) {
		key := string(k.Name)
		kind := keyFacts{Key: key}.Kind()
		if kind != "" && !isNameOfKey(key) && !isNameOfLongKey(key) && len(m.kinds) < maxKinds && !slices.Contains(m.kinds, kind) {
			m.kinds = append(m.kinds, strings.Clone(kind))
		}
	}
	return slices.Clone(m.kinds)
}
