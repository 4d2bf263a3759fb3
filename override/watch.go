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
	readTimeout = 500 * time.Millisecond
	writeFor    = time.Second            // the values that disappeared, for each look
	retryAfter  = 250 * time.Millisecond // after a look that failed
	logEvery    = time.Minute
	maxLines    = 1000 // that wait for a slow handler of slog; further ones are left out
)

// Overrides are the overrides of a Limiter. Make them with [Watch].
type Overrides struct {
	limiter *ratelimit.Limiter
	values  store.Values
	cfg     Config
	lines   chan slog.Record

	looking sync.Mutex  // held while values are read and applied, so that no older state overtakes a newer one
	after   store.Value // the last one that was read; guarded by looking

	mu     sync.Mutex // guards the fields below
	book   book
	begun  bool          // the values were read once
	stale  bool          // the Limiter does not have what is in the book
	offset time.Duration // of the Store's clock from this one
	failed error         // of the last look
	down   time.Time
	lost   int       // values that have disappeared and are not written back yet
	warned time.Time // of failed, or of lost
}

// Watch reads the overrides and puts them in force with [ratelimit.Limiter.Override]. Then it returns. Until ctx ends, it
// does so again for each change. If the first read fails, the program's limits stay in force, which is logged, and Watch
// goes on looking. Call it after the policies are mounted: a policy that is mounted later keeps the program's limits until
// the next look. The error names every wrong argument.
//
// A [store.Fallback] and the other decorators pass the values through to their Store. Without a Redis, a
// *memstore.Store keeps the overrides until the program ends.
func Watch(ctx context.Context, l *ratelimit.Limiter, values store.Values, cfg Config) (*Overrides, error) {
	var wrong []error
	if l == nil {
		wrong = append(wrong, errors.New("l: must not be nil"))
	}
	if values == nil {
		wrong = append(wrong, errors.New("values: must not be nil, but a *redisstore.Store for example"))
	}
	if cfg.Every < 0 || cfg.Every > defaultEvery {
		wrong = append(wrong, fmt.Errorf("Config.Every %v: must be positive and at most %v; 0 means %v", cfg.Every, defaultEvery, defaultEvery))
	}
	if cfg.MaxFactor < 0 {
		wrong = append(wrong, fmt.Errorf("Config.MaxFactor %d: must be positive; 0 means the default of %d", cfg.MaxFactor, defaultMaxFactor))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("override: Watch: %w", err)
	}
	cfg.Every, cfg.MaxFactor = cmp.Or(cfg.Every, defaultEvery), cmp.Or(cfg.MaxFactor, defaultMaxFactor)
	s := &Overrides{limiter: l, values: values, cfg: cfg, lines: make(chan slog.Record, maxLines)}
	s.book = book{programs: l.ProgramLimits(), maxFactor: cfg.MaxFactor, values: make(map[string]*held)}
	go s.writeLines(ctx)
	err := s.look(ctx)
	go s.watch(ctx, err)
	return s, nil
}

// say logs a line. A goroutine writes it, because a slow handler of slog must not delay the page, Set, or the next look.
func (s *Overrides) say(level slog.Level, message string, attrs ...slog.Attr) {
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.AddAttrs(attrs...)
	select {
	case s.lines <- line:
	default:
	}
}

func (s *Overrides) writeLines(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-s.lines:
			handler := cmp.Or(s.cfg.Logger, slog.Default()).Handler()
			if handler.Enabled(ctx, line.Level) {
				handler.Handle(ctx, line)
			}
		}
	}
}

func (s *Overrides) watch(ctx context.Context, last error) {
	for {
		wait := s.cfg.Every*9/10 + rand.N(s.cfg.Every/5+1) // so that replicas do not read at the same time
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
	lost, err := s.read(ctx)
	if len(lost) == 0 {
		return err
	}
	if err = s.writeBack(ctx, lost); err == nil {
		_, err = s.read(ctx)
	} else {
		s.after = store.Value{} // the next look reads all values, and finds what is still lost
	}
	return err
}

// read reads the changes once, and returns the values that have disappeared. The caller holds looking.
func (s *Overrides) read(ctx context.Context) (lost []store.Value, err error) {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	changes, err := s.values.ReadValues(limited, setName, s.after)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			s.noteFailure(err)
		}
	} else {
		s.noteAnswer(changes.Now)
		lost = s.take(changes)
		if n := len(changes.Values); n > 0 {
			s.after = changes.Values[n-1]
		} else if changes.All {
			s.after = store.Value{}
		}
	}
	s.apply()
	return lost, err
}

// now returns the time of the Store, also in an outage.
func (s *Overrides) now() time.Time { return time.Now().Add(s.offset) }

func (s *Overrides) noteFailure(err error) {
	if s.failed == nil {
		s.down = time.Now()
	}
	first := s.failed == nil
	s.failed = err
	if first || time.Since(s.warned) >= logEvery {
		s.warned = time.Now()
		s.say(slog.LevelWarn, "ratelimit: overrides cannot be read: those in force stay", slog.String("error", logtext.Show(err.Error(), maxShown)))
	}
}

func (s *Overrides) noteAnswer(now time.Time) {
	if s.failed != nil {
		s.say(slog.LevelInfo, "ratelimit: overrides are read again", slog.Duration("after", time.Since(s.down)))
	}
	s.failed, s.offset = nil, now.Sub(time.Now())
}

// take puts changes into the book, and returns the values that have disappeared from the Store, or are older there: by
// FLUSHALL, an eviction, or a failover to a server without them. They stay in the book. Their Version is the one that the
// Store has now.
func (s *Overrides) take(changes store.ValueChanges) (lost []store.Value) {
	there := make(map[string]store.Value, len(changes.Values))
	for _, v := range changes.Values {
		there[v.Name] = v
	}
	if changes.All {
		for name, h := range s.book.values {
			v, mine := there[name], h.value()
			if v.Version >= mine.Version || v.Text == mine.Text && v.Until.Equal(mine.Until) || passed(h.until, changes.Now) {
				continue
			}
			mine.Version = v.Version
			lost = append(lost, mine)
			delete(there, name)
		}
	}
	for name, v := range there {
		was, now := s.book.values[name], s.book.judge(v, changes.Now)
		s.note(was, now)
		s.book.values[name], s.stale = now, true
	}
	if !s.begun {
		s.begun = true
		s.say(slog.LevelInfo, "ratelimit: overrides are read", slog.Int("values", len(there)))
	}
	if s.lost = len(lost); s.lost > 0 && time.Since(s.warned) >= logEvery {
		s.warned = time.Now()
		s.say(slog.LevelWarn, "ratelimit: overrides have disappeared from the store: they stay in force, and are written back", slog.Int("values", s.lost))
	}
	return lost
}

// writeBack writes values again that had disappeared. If one of them is there, somebody else was faster.
func (s *Overrides) writeBack(ctx context.Context, lost []store.Value) error {
	limited, cancel := context.WithTimeout(ctx, writeFor)
	defer cancel()
	for _, v := range lost {
		if _, _, err := s.values.WriteValue(limited, setName, v); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = 0
	return nil
}

// apply puts the overrides in force, ends those whose end has come, and judges all again if the program has set other
// limits. The caller holds mu.
func (s *Overrides) apply() {
	now := s.now()
	programs := programLimits(s.limiter.ProgramLimits())
	again := !maps.EqualFunc(programs, s.book.programs, slices.Equal)
	s.book.programs = programs
	for name, h := range s.book.values {
		if ended := h.why != "" && passed(h.end, now); again || ended {
			next := s.book.judge(h.value(), now)
			s.note(h, next)
			s.book.values[name], s.stale = next, true
		}
		if passed(h.until, now) {
			delete(s.book.values, name)
			s.stale = true
		}
	}
	if !s.stale {
		return
	}
	overrides := make([]ratelimit.Override, 0, len(s.book.values))
	for _, h := range s.book.values {
		if h.follow {
			policy, key := h.policyAndKey()
			overrides = append(overrides, ratelimit.Override{Policy: policy, Key: key, Limit: h.limit.Value(), Why: h.why})
		}
	}
	err := s.limiter.Override(overrides)
	if s.stale = err != nil; s.stale { // judge accepts only what Override does
		s.say(slog.LevelError, "ratelimit: overrides are not applied", slog.String("error", logtext.Show(err.Error(), maxShown)))
	}
}

// passed reports whether a time in microseconds has come. With an equal time it has, as in the Store.
func passed(end int64, now time.Time) bool { return end != 0 && end <= now.UnixMicro() }

// note logs what is new about a value. was may be nil.
func (s *Overrides) note(was, now *held) {
	if was == nil {
		was = new(held)
	}
	policy, key := now.policyAndKey()
	attrs := []slog.Attr{slog.String("policy", logtext.Show(policy, maxPolicy))}
	if key != "" {
		attrs = append(attrs, slog.String("key", logtext.Show(key, maxShown)))
	}
	same := was.text == now.text && was.follow == now.follow && was.why != ""
	switch {
	case same:
	case now.follow && s.begun:
		r, _ := parseRecord(now.text)
		attrs = append(attrs, slog.String("limit", r.Limit), slog.String("program", limitText(s.book.programs.shown(policy))), slog.String("by", r.By), slog.String("why", r.Why), slog.Bool("forced", r.Forced))
		if now.end != 0 {
			attrs = append(attrs, slog.Time("until", timeOf(now.end)))
		}
		s.say(slog.LevelInfo, "ratelimit: limit changed", attrs...)
	case !now.follow && now.why != "":
		s.say(slog.LevelWarn, "ratelimit: override refused: the program's limit stays", append(attrs, slog.String("error", now.why))...)
	case was.follow:
		s.say(slog.LevelInfo, "ratelimit: override ended", attrs...)
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
	if err := write(ctx, s.values, v); err != nil {
		return err
	}
	s.look(ctx) // if it fails, the next look applies the change
	return nil
}

// List returns the policies of the Limiter and all overrides, by policy and key. It reads only memory: it is what this
// replica enforces. With 10,000 overrides it takes some 30 ms.
func (s *Overrides) List() []Entry { return s.entries(all) }

// OfKey returns the overrides of a key.
func (s *Overrides) OfKey(key string) []Entry {
	return s.entries(func(_, of string) bool { return key != "" && of == key })
}

func (s *Overrides) entries(match func(policy, key string) bool) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.book
	now.programs = s.limiter.ProgramLimits() // a policy may have been mounted since the last look
	return now.entries(match)
}

// History returns the last 50 changes as this replica has read them, the newest first: the last one of each policy and key,
// for 30 days after its end.
func (s *Overrides) History() []Logged {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.history()
}

// Problem says what is wrong with the overrides, in a sentence: they cannot be read, or they have disappeared. "" if all is
// well.
func (s *Overrides) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed != nil:
		return fmt.Sprintf("The overrides cannot be read since %s: %s. Those in force stay.", s.down.UTC().Format(time.TimeOnly), logtext.Show(s.failed.Error(), maxShown))
	case s.lost > 0:
		return fmt.Sprintf("%d overrides have disappeared from the store. They stay in force, and are written back.", s.lost)
	}
	return ""
}
