package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Fleet is all replicas that publish, by name.
type Fleet struct {
	Replicas   []Replica
	More       int // replicas beyond MaxReplicas
	Unreadable int // values that are no snapshots
}

// A Replica is a replica of a [Fleet].
type Replica struct {
	*Snapshot
	Age    time.Duration // since it has published
	Silent bool          // for SilentAfter: it has ended, or is cut off from Redis
	Own    bool          // it is this process

	// Behind says what the replica has that is older than what others have, in sentences for people.
	Behind []string
}

// Away reports whether the store of the replica does not answer.
func (r *Replica) Away() bool { return !r.Newer && r.Store.State != "answers" }

// Merged adds up all replicas. The one of this process comes first. The rates of a silent replica do not count.
func (f *Fleet) Merged() *Snapshot {
	var own, others []*Snapshot
	for _, r := range f.Replicas {
		switch {
		case r.Own:
			own = append(own, r.Snapshot)
		case r.Silent:
			others = append(others, r.Snapshot.withoutLast())
		default:
			others = append(others, r.Snapshot)
		}
	}
	return Merge(append(own, others...))
}

func (s *Snapshot) withoutLast() *Snapshot {
	silent := *s
	silent.Last, silent.Limited = Counts{}, ""
	silent.Policies = slices.Clone(s.Policies)
	for i := range silent.Policies {
		silent.Policies[i].Last = Counts{}
	}
	return &silent
}

// With returns f with this replica, as it is now.
func (f Fleet) With(own *Snapshot) Fleet {
	f.Replicas = slices.DeleteFunc(slices.Clone(f.Replicas), func(r Replica) bool { return r.Replica == own.Replica })
	f.Replicas = append(f.Replicas, Replica{Snapshot: own, Own: true})
	f.judge()
	return f
}

// maxDiffer is of how many policies Behind has both limits.
const maxDiffer = 3

// judge sorts the replicas, and fills Behind. The limits and the release of the replica that knows the last change of a limit
// are the newest, or else of the one with the newest program.
func (f *Fleet) judge() {
	slices.SortFunc(f.Replicas, func(a, b Replica) int { return cmp.Compare(a.Replica, b.Replica) })
	var newest *Snapshot
	limits := make(map[string]string)
	for _, r := range byAge(f.Replicas) {
		newest = r.Snapshot
		for _, p := range r.Policies {
			limits[p.Name] = p.Limit
		}
	}
	for i := range f.Replicas {
		r := &f.Replicas[i]
		r.Behind = nil
		if r.Newer || newest == nil {
			continue
		}
		if r.Release != newest.Release && newest.Release != "" {
			r.Behind = append(r.Behind, fmt.Sprintf("It runs release %s, and %s runs %s.", cmp.Or(r.Release, "unknown"), newest.Replica, newest.Release))
		}
		if r.Overrides.Changed.Before(newest.Overrides.Changed) {
			r.Behind = append(r.Behind, "It does not know the last change of a limit.")
		}
		differ := 0
		for _, p := range r.Policies {
			limit, ok := limits[p.Name]
			if !ok || p.Limit == limit {
				continue
			}
			if differ++; differ <= maxDiffer {
				r.Behind = append(r.Behind, fmt.Sprintf("It limits %s to %s, and others to %s.", p.Name, cmp.Or(p.Limit, "what a LimitFunc returns"), cmp.Or(limit, "what a LimitFunc returns")))
			}
		}
		if differ > maxDiffer {
			r.Behind = append(r.Behind, fmt.Sprintf("It has other limits for %d policies in all.", differ))
		}
	}
}

// byAge returns the replicas that this release can read and that are not silent, the one with the newest limits last.
func byAge(replicas []Replica) []Replica {
	known := slices.DeleteFunc(slices.Clone(replicas), func(r Replica) bool { return r.Newer || r.Silent })
	slices.SortStableFunc(known, func(a, b Replica) int {
		return cmp.Or(a.Overrides.Changed.Compare(b.Overrides.Changed), a.Built.Compare(b.Built), a.Started.Compare(b.Started))
	})
	return known
}

const (
	// readWithin bounds a read, and keptFor how long its result is shown while later ones fail.
	readWithin = time.Second
	keptFor    = 6 * time.Second
)

// A Reader reads the fleet for all who ask. It is safe for concurrent use, and needs no closing.
type Reader struct {
	values store.Values
	secret []byte
	// Only the read that is under way uses these two.
	held map[string]*held // by the name of the value
	back time.Time        // the first read after the last one that has failed

	mu     sync.Mutex    // guards the fields below
	began  time.Time     // the last read
	under  chan struct{} // closed when it is over; nil if none is under way
	err    error         // of the last read that is over
	readAt time.Time     // the last one without an error
	fleet  Fleet
}

// A held is a value that was read before.
type held struct {
	version   int64
	published time.Time // by this process's clock
	snapshot  *Snapshot // nil: it is not readable
}

// NewReader returns a Reader of values. secret opens the keys that were sealed with it, and may be nil. Other sealed keys are
// left out.
func NewReader(values store.Values, secret []byte) *Reader {
	return &Reader{values: values, secret: secret, held: make(map[string]*held)}
}

// Due reports whether Fleet begins to read.
func (r *Reader) Due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due()
}

func (r *Reader) due() bool {
	return r.under == nil && (r.began.IsZero() || time.Since(r.began) >= Every)
}

// Fleet returns all replicas, at most [Every] and the time of a read old. It waits for a read at most until ctx ends. Times of
// replicas whose clock is another one are shifted to this process's clock.
func (r *Reader) Fleet(ctx context.Context) (Fleet, error) {
	r.mu.Lock()
	if r.due() {
		r.began, r.under = time.Now(), make(chan struct{})
		go r.read(r.under)
	}
	under := r.under
	r.mu.Unlock()
	if under != nil {
		select {
		case <-under:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readAt.IsZero() || time.Since(r.readAt) > keptFor {
		return Fleet{}, cmp.Or(r.err, errors.New("fleet: the store has not answered yet"))
	}
	return r.fleet, nil
}

// read reads the values once.
func (r *Reader) read(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	f, err := r.readValues(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(done)
	if r.under, r.err = nil, err; err == nil {
		r.readAt, r.fleet = time.Now(), f
	}
}

// readValues reads the values. A panic of somebody's Store must not end the process.
func (r *Reader) readValues(ctx context.Context) (f Fleet, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("fleet: the store panicked: %v", panicked)
		}
	}()
	changes, err := r.values.ReadValues(ctx, setName, store.Value{})
	if err != nil {
		return Fleet{}, err
	}
	if r.err != nil {
		r.back = time.Now()
	}
	return r.decode(changes), nil
}

// quiet returns for how long a replica has not published although it could. In an outage no replica can.
func (r *Reader) quiet(h *held, now time.Time) time.Duration {
	return min(now.Sub(h.published), now.Sub(r.back))
}

// decode returns the replicas of all values.
func (r *Reader) decode(changes store.ValueChanges) (f Fleet) {
	now, before := time.Now(), r.held
	r.held = make(map[string]*held)
	for _, v := range slices.Backward(changes.Values) { // the newest first
		if len(f.Replicas)+f.Unreadable == MaxReplicas { // the others are not decoded each time
			if changes.Now.Sub(time.UnixMicro(v.Version)) < GoneAfter {
				f.More++
			}
			continue
		}
		h := before[v.Name]
		if h == nil || h.version != v.Version {
			h = r.newHeld(v, now, changes.Now)
		}
		switch {
		case r.quiet(h, now) >= GoneAfter: // and stays so, also if the store's clock was set back and is behind the version
			h.snapshot = nil
		case h.snapshot == nil:
			f.Unreadable++
		default:
			f.Replicas = append(f.Replicas, Replica{Snapshot: h.snapshot, Age: now.Sub(h.published), Silent: r.quiet(h, now) >= SilentAfter})
		}
		r.held[v.Name] = h
	}
	for name, h := range before { // a replica whose value the store has lost writes it again
		if r.held[name] == nil && h.snapshot != nil && r.quiet(h, now) < SilentAfter && len(r.held) < MaxReplicas {
			f.Replicas = append(f.Replicas, Replica{Snapshot: h.snapshot, Age: now.Sub(h.published)})
			r.held[name] = h
		}
	}
	f.judge()
	return f
}

// newHeld reads a value. Its version is the time at which it was written, by the clock of the Store.
func (r *Reader) newHeld(v store.Value, now, storeNow time.Time) *held {
	age := max(0, storeNow.Sub(time.UnixMicro(v.Version)))
	h := &held{version: v.Version, published: now.Add(-age)}
	s, err := Decode(v.Text)
	if err != nil || !replicaName.MatchString(v.Name) {
		return h
	}
	s.Replica = strings.Clone(v.Name)
	by := h.published.Sub(s.At)
	if by.Abs() > 4*maxAway { // the longest Duration is 292 years: the time would stay far ahead, and hide blocks of others
		return h
	}
	if by.Abs() > sameClock {
		s.shift(by)
	}
	s.open(r.secret)
	h.snapshot = s
	return h
}

// sameClock is by how much the clocks of two replicas may differ without a shift of their times.
const sameClock = 3 * time.Second

// shift moves all times of s except those of the Store's clock.
func (s *Snapshot) shift(by time.Duration) {
	move := func(times ...*time.Time) {
		for _, t := range times {
			if !t.IsZero() {
				*t = t.Add(by).UTC()
			}
		}
	}
	move(&s.At, &s.Started, &s.Store.Since, &s.Store.LastErrorAt)
	for i := range s.Store.Outages {
		move(&s.Store.Outages[i].Since, &s.Store.Outages[i].Until)
	}
	for i := range s.Blocks {
		move(&s.Blocks[i].Until)
	}
	for _, steps := range s.steps() {
		move(&steps.End)
	}
}

// Settle moves steps that end long before or after s was taken, because the clock of the process was set since it began to
// count, to that time. Otherwise Decode would refuse s for as long as the process runs.
func (s *Snapshot) Settle() {
	for _, steps := range s.steps() {
		length := time.Duration(steps.Seconds) * time.Second
		if late := s.At.Sub(steps.End); length > 0 && (late < 0 || late > 3*length) {
			steps.End = s.At.Truncate(length)
		}
	}
}

// steps returns those of s.
func (s *Snapshot) steps() []*Steps {
	all, histories := []*Steps{&s.KeySteps}, []Histories{s.History}
	for _, p := range s.Policies {
		histories = append(histories, p.History)
	}
	for _, h := range histories {
		for _, ranged := range []*History{h.TenMinutes, h.Hour, h.SixHours} {
			if ranged != nil {
				all = append(all, &ranged.Steps)
			}
		}
	}
	return all
}
