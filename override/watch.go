package override

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	defaultMaxFactor = 10

	every      = time.Second
	timeout    = 800 * time.Millisecond // of a look, and to write back what has disappeared
	maxTimeout = 5 * time.Second        // of a look that reads all values, after it has failed: there may be 100,000
	retryAfter = 250 * time.Millisecond // after a look that failed
	allEvery   = 10 * time.Minute       // between two reads of all values, because a read of changes can miss that some are lost
	warnEvery  = time.Minute
	maxLines   = 1000 // that wait for a slow handler of slog; further ones are left out
	maxSaid    = 20   // changes of a look that have a line each
)

// Overrides are the overrides of a Limiter. Make them with [Watch], or with [Edit] for a program without a Limiter.
type Overrides struct {
	limiter  *ratelimit.Limiter // nil for Edit
	programs func() map[string][]ratelimit.Limit
	values   store.Values
	logger   *slog.Logger
	lines    chan func()

	looking sync.Mutex // held while values are read and applied, so that no older state overtakes a newer one
	// Guarded by looking.
	after   store.Value   // the last one that was read
	timeout time.Duration // of the next look that reads all values
	readAt  time.Time     // by the clock of the Store
	allDue  time.Time     // when all are read again, by that clock

	mu     sync.Mutex // guards the fields below
	book   book
	stale  bool          // the Limiter does not have what is in the book
	offset time.Duration // of the Store's clock from this one
	failed error         // of the last look
	warned time.Time
}

// Watch reads the overrides and puts them in force with [ratelimit.Limiter.Override]. Then it returns. Until ctx ends, it
// does so again for each change. If the first read fails, the program's limits stay in force, which is logged, and Watch
// goes on looking. Call it after the policies are mounted: a policy that is mounted later keeps the program's limits until
// the next look. A fallback.Store and other decorators of a Store pass the values through.
func Watch(ctx context.Context, l *ratelimit.Limiter, values store.Values, cfg Config) (*Overrides, error) {
	switch {
	case l == nil:
		return nil, errors.New("override: Watch: l: must not be nil")
	case values == nil:
		return nil, errors.New("override: Watch: values: must not be nil, but a *redisstore.Store for example")
	case cfg.MaxFactor < 0:
		return nil, fmt.Errorf("override: Watch: Config.MaxFactor %d: must be positive; 0 means the default of %d", cfg.MaxFactor, defaultMaxFactor)
	}
	s := newOverrides(values, cfg, l.ProgramLimits)
	s.limiter = l
	go s.writeLines(ctx)
	err := s.look(ctx)
	go s.watch(ctx, err)
	return s, nil
}

// Edit returns the overrides to read and to change them without a Limiter, as the command does. It reads them once. program
// has the limits that the program sets, as [ratelimit.Limiter.ProgramLimits] returns them. If it is nil, Change.Was stands
// for the program's limit, or else the limit that is in force. The replicas then judge whether they follow.
func Edit(ctx context.Context, values store.Values, program map[string][]ratelimit.Limit) (*Overrides, error) {
	s := newOverrides(values, Config{}, func() map[string][]ratelimit.Limit { return program })
	if err := s.look(ctx); err != nil {
		return nil, fmt.Errorf("override: %w", err)
	}
	return s, nil
}

func newOverrides(values store.Values, cfg Config, programs func() map[string][]ratelimit.Limit) *Overrides {
	b := book{programs: programs(), maxFactor: cmp.Or(cfg.MaxFactor, defaultMaxFactor), values: make(map[string]*held)}
	return &Overrides{programs: programs, values: values, timeout: timeout, logger: cfg.Logger, lines: make(chan func(), maxLines), book: b}
}

// log writes a line. Another goroutine does it, because a slow handler of slog must not delay the page, Set, or the next look.
func (s *Overrides) log(level slog.Level, message string, attrs ...slog.Attr) {
	write := func() { cmp.Or(s.logger, slog.Default()).LogAttrs(context.Background(), level, message, attrs...) }
	select {
	case s.lines <- write:
	default:
	}
}

// warn logs a line, and no other one for a minute.
func (s *Overrides) warn(message string, attr slog.Attr) {
	if time.Since(s.warned) >= warnEvery {
		s.warned = time.Now()
		s.log(slog.LevelWarn, message, attr)
	}
}

func (s *Overrides) writeLines(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case write := <-s.lines:
			write()
		}
	}
}

func (s *Overrides) watch(ctx context.Context, last error) {
	for {
		wait := every*9/10 + rand.N(every/5) // so that replicas do not read at the same time
		if last != nil {
			wait = min(wait, retryAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		last = s.look(ctx)
	}
}

// look reads the changes and puts them in force. Values that have disappeared are written back, and read again.
func (s *Overrides) look(ctx context.Context) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	after := s.after
	if now := s.now(); !now.Before(s.allDue) || now.Sub(s.readAt) >= keepOver {
		after, s.allDue = store.Value{}, now.Add(allEvery) // if it fails, the next look reads the changes
	}
	lost, back, err := s.read(ctx, after)
	if back { // it may have missed that other values have disappeared
		s.after = store.Value{}
		lost, _, err = s.read(ctx, s.after)
	}
	if len(lost) == 0 {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for i, v := range lost {
		if _, _, err := s.values.WriteValue(limited, setName, v); err != nil { // if it is not written, somebody else was faster
			s.after = store.Value{} // the next look reads all values, and finds what is still lost
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failed = fmt.Errorf("%d overrides have disappeared and are not written back yet: %w", len(lost)-i, err)
			return err
		}
	}
	_, _, err = s.read(ctx, s.after)
	return err
}

// read reads the changes after a value once. For what it returns, see update. The caller holds looking.
func (s *Overrides) read(ctx context.Context, after store.Value) (lost []store.Value, back bool, err error) {
	patience := timeout
	if after.Version == 0 {
		patience = s.timeout
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	changes, err := s.values.ReadValues(limited, setName, after)
	if after.Version == 0 && errors.Is(err, context.DeadlineExceeded) {
		s.timeout = min(2*s.timeout, maxTimeout)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.failed, s.offset = nil, time.Until(changes.Now)
		if changes.Now.Sub(s.readAt) >= keepOver { // the Store no longer knows what was ended meanwhile
			clear(s.book.values)
			s.stale = true
		}
		lost, back = s.update(changes)
		s.readAt = changes.Now
		if changes.All {
			s.after, s.timeout, s.allDue = store.Value{}, timeout, changes.Now.Add(allEvery)
		}
		if n := len(changes.Values); n > 0 {
			s.after = changes.Values[n-1]
		}
	} else if ctx.Err() == nil {
		s.failed = err
		s.warn("ratelimit: overrides cannot be read: those in force stay", slog.String("error", logtext.Show(err.Error(), maxShown)))
	}
	s.apply()
	return lost, back, err
}

// now returns the time of the Store, also in an outage.
func (s *Overrides) now() time.Time { return time.Now().Add(s.offset) }

// update puts changes into the book. lost are the values that have disappeared from the Store, or of which it has an earlier
// change, for example after FLUSHALL or a failover. They stay in the book. Their Version is the one that the Store has now.
// back reports that another replica has written values back, and that changes are not all values: more may be lost.
func (s *Overrides) update(changes store.ValueChanges) (lost []store.Value, back bool) {
	there := make(map[string]*held, len(changes.Values))
	for _, v := range changes.Values {
		h := s.book.values[v.Name]
		if h == nil || h.version != v.Version {
			h = newHeld(v)
			back = back || !changes.All && h.changed != h.version
		}
		there[v.Name] = h
	}
	known, none := maps.Keys(there), new(held)
	if changes.All {
		known = maps.Keys(s.book.values)
	}
	for name := range known {
		h, now := s.book.values[name], cmp.Or(there[name], none)
		switch {
		case h == nil:
		case now == h:
			delete(there, name)
		case h.changed <= now.changed || passed(h.until, changes.Now):
		case !h.malformed():
			mine := h.value()
			mine.Version = now.version
			lost = append(lost, mine)
			delete(there, name)
		case now.version == 0: // nobody can end it
			delete(s.book.values, name)
		}
	}
	for name, h := range there {
		s.book.judge(h, changes.Now)
		if len(there) <= maxSaid || h.refused() {
			s.logChange(cmp.Or(s.book.values[name], new(held)), h)
		}
		s.book.values[name], s.stale = h, true
	}
	if len(there) > maxSaid {
		s.log(slog.LevelInfo, "ratelimit: overrides are read", slog.Int("values", len(there)))
	}
	if len(lost) > 0 {
		s.warn("ratelimit: overrides have disappeared from the store: they stay in force, and are written back", slog.Int("values", len(lost)))
	}
	return lost, back
}

// apply puts the overrides in force, ends those whose end has come, which the Store's clock may take back, and judges all
// again if the program has set other limits. The caller holds mu.
func (s *Overrides) apply() {
	now := s.now()
	programs := s.programs()
	again := !maps.EqualFunc(programs, s.book.programs, slices.Equal)
	s.book.programs = programs
	for name, h := range s.book.values {
		if again || h.over() != passed(h.end, now) && h.limit.Value() != (ratelimit.Limit{}) {
			was := *h
			s.book.judge(h, now)
			s.logChange(&was, h)
			s.stale = true
		}
		if passed(h.until, now) {
			delete(s.book.values, name)
			s.stale = true
		}
	}
	if !s.stale || s.limiter == nil {
		return
	}
	overrides := make([]ratelimit.Override, 0, len(s.book.values))
	for _, h := range s.book.values {
		if h.follow {
			policy, key := h.policyAndKey()
			overrides = append(overrides, ratelimit.Override{Policy: policy, Key: key, Limit: h.limit.Value(), Why: h.verdict})
		}
	}
	err := s.limiter.Override(overrides)
	if s.stale = err != nil; s.stale { // judge accepts only what Override does
		s.log(slog.LevelError, "ratelimit: overrides are not applied", slog.String("error", logtext.Show(err.Error(), maxShown)))
	}
}

// logChange logs what is new about a value.
func (s *Overrides) logChange(was, now *held) {
	policy, _ := now.policyAndKey()
	attrs := []slog.Attr{slog.String("of", logtext.Show(now.name, maxShown)), slog.String("by", logtext.Show(now.by, maxShown)), slog.String("why", logtext.Show(now.why, maxShown))}
	same := was.by == now.by && was.why == now.why && was.limit == now.limit && was.end == now.end && was.follow == now.follow && was.refused() == now.refused()
	switch {
	case same:
	case now.follow:
		if now.end > 0 {
			attrs = append(attrs, slog.Time("until", timeOf(now.end)))
		}
		s.log(slog.LevelInfo, "ratelimit: limit changed", append(attrs, slog.String("limit", now.text()),
			slog.String("program", limitText(s.book.program(policy))), slog.Bool("forced", now.forced))...)
	case now.refused():
		s.log(slog.LevelWarn, "ratelimit: override refused: the program's limit stays", append(attrs, slog.String("error", now.verdict))...)
	case was.follow:
		s.log(slog.LevelInfo, "ratelimit: override ended", attrs...)
	}
}

// Set changes the limit of a policy, or of one of its keys. This replica has it when Set returns, all others within two
// seconds.
//
// If nothing was changed, the error is an [ErrConflict], a *[FactorError], or an [ErrRefused] that says what is wrong with
// the change. After another error it is not known whether the change was made: look at [Overrides.List].
func (s *Overrides) Set(ctx context.Context, c Change) error { return s.change(ctx, c, (*book).set) }

// End ends an override: the limit of the policy, or that of the program, is in force again. It does not use c.Limit,
// c.Until and c.Force. Its errors are those of [Overrides.Set].
func (s *Overrides) End(ctx context.Context, c Change) error { return s.change(ctx, c, (*book).end) }

func (s *Overrides) change(ctx context.Context, c Change, prepare func(*book, Change, time.Time) (store.Value, error)) error {
	if err := s.look(ctx); err != nil {
		return fmt.Errorf("override: %w", err)
	}
	s.mu.Lock()
	v, err := prepare(&s.book, c, s.now())
	s.mu.Unlock()
	if err != nil {
		return err
	}
	now, written, err := s.values.WriteValue(ctx, setName, v)
	if err != nil {
		return fmt.Errorf("override: %w", err)
	}
	if !written { // it may be lost in the Store, or not be listed there
		s.looking.Lock()
		s.allDue = time.Time{}
		s.looking.Unlock()
	}
	s.look(ctx) // if it fails, the next look applies the change
	if written {
		return nil
	}
	is := "that of the program"
	if h := newHeld(now); now.Version != 0 && h.text() != "" {
		is = h.text() + ", by " + logtext.Show(h.by, maxShown)
	}
	return fmt.Errorf("override: %s: %w: it is %s", shownName(c.Policy, c.Key), ErrConflict, is)
}

// List returns the policies of the program and all overrides, by policy and key, for which match is true. A nil match is true
// for all. The Key of a policy is "". List reads only memory: it is what this replica enforces.
func (s *Overrides) List(match func(policy, key string) bool) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.book
	now.programs = s.programs() // a policy may have been mounted since the last look
	return now.list(match)
}

// History returns the last 50 changes, the newest first. It has the last one of each policy and key, for 30 days after its
// end. An Entry without a Limit ended an override.
func (s *Overrides) History() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.history()
}

// InForce returns how many overrides this replica enforces, and when the last change that it knows was made, by the clock of
// the Store. [Overrides.List] has them.
func (s *Overrides) InForce() (n int, changed time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(0)
	for _, h := range s.book.values {
		if last = max(last, h.changed); h.follow {
			n++
		}
	}
	if last == 0 {
		return n, time.Time{}
	}
	return n, timeOf(last)
}

// Problem says what is wrong with the overrides in a sentence, "" if all is well.
func (s *Overrides) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		return ""
	}
	return fmt.Sprintf("The overrides cannot be read: %s. Those in force stay.", logtext.Show(s.failed.Error(), maxShown))
}
