package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	readTimeout = 500 * time.Millisecond
	retryAfter  = 250 * time.Millisecond // after a read that failed
	logEvery    = time.Minute
	maxLines    = 1000 // that wait for a slow handler of slog; further ones are left out
)

// Limits are the changed limits of a Limiter. Make them with [Watch].
type Limits struct {
	limiter *ratelimit.Limiter
	keeper  Keeper
	cfg     Config

	looking sync.Mutex // held while the kept limits are read and applied, so that no older state overtakes a newer one

	mu       sync.Mutex        // guards the fields below
	held     map[string]string // what was read last
	verdicts map[string]*verdict
	over     map[string]ratelimit.Limit // in force
	why      map[string]string
	lost     map[string]string // values that have disappeared, not by End, and are still followed
	log      []Logged
	since    string // of the hash
	count    int64  // of changes in the hash
	failed   error  // of the last look
	down     time.Time
	warned   time.Time     // of failed, or of lost
	lines    []slog.Record // that wait to be written
	writing  bool
}

// Watch reads the changed limits and applies them to l with [ratelimit.Limiter.Override]. Then it returns. Until ctx ends,
// it does so again for each change. If the first read fails, the program's limits stay in force, which is logged, and Watch goes on looking. Call
// it after the policies are mounted: a policy that is mounted later keeps the program's limit until the next look. The
// error names every wrong argument.
func Watch(ctx context.Context, l *ratelimit.Limiter, k Keeper, cfg Config) (*Limits, error) {
	var wrong []error
	if l == nil {
		wrong = append(wrong, errors.New("l: must not be nil"))
	}
	if k == nil {
		wrong = append(wrong, errors.New("k: must not be nil, but a *redisstore.Store for example"))
	}
	if cfg.Every < 0 || cfg.Every > defaultEvery {
		wrong = append(wrong, fmt.Errorf("Config.Every %v: must be positive and at most %v; 0 means %v", cfg.Every, defaultEvery, defaultEvery))
	}
	if cfg.MaxFactor < 0 {
		wrong = append(wrong, fmt.Errorf("Config.MaxFactor %d: must be positive; 0 means the default of %d", cfg.MaxFactor, defaultMaxFactor))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("limits: Watch: %w", err)
	}
	cfg.Every, cfg.MaxFactor = cmp.Or(cfg.Every, defaultEvery), cmp.Or(cfg.MaxFactor, defaultMaxFactor)
	s := &Limits{limiter: l, keeper: k, cfg: cfg}
	err := s.look(ctx)
	go s.watch(ctx, err)
	return s, nil
}

// say logs a line. The caller holds mu, which keeps the lines in order. A goroutine writes them without a lock, because a
// slow handler of slog must not delay the page, Set, or the next look.
func (s *Limits) say(level slog.Level, message string, attrs ...slog.Attr) {
	if len(s.lines) == maxLines {
		return
	}
	line := slog.NewRecord(time.Now(), level, message, 0)
	line.AddAttrs(attrs...)
	s.lines = append(s.lines, line)
	if !s.writing {
		s.writing = true
		go s.write()
	}
}

// write writes lines until none is left.
func (s *Limits) write() {
	for {
		s.mu.Lock()
		lines := s.lines
		s.lines, s.writing = nil, len(lines) > 0
		s.mu.Unlock()
		if len(lines) == 0 {
			return
		}
		handler := cmp.Or(s.cfg.Logger, slog.Default()).Handler()
		for _, line := range lines {
			if handler.Enabled(context.Background(), line.Level) {
				handler.Handle(context.Background(), line)
			}
		}
	}
}

func (s *Limits) watch(ctx context.Context, last error) {
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

// look reads the kept limits and puts them in force.
func (s *Limits) look(ctx context.Context) (err error) {
	s.looking.Lock()
	defer s.looking.Unlock()
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	held, err := load(limited, s.keeper)
	if err != nil {
		if ctx.Err() == nil {
			s.noteFailure(err)
			s.applyAgain()
		}
		return err
	}
	s.noteAnswer()
	s.apply(held)
	return nil
}

func (s *Limits) noteFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.down = time.Now()
	}
	first := s.failed == nil
	s.failed = err
	if first || time.Since(s.warned) >= logEvery {
		s.warned = time.Now()
		s.say(slog.LevelWarn, "ratelimit: changed limits cannot be read: the limits in force stay", slog.String("error", logtext.Show(err.Error(), maxShown)))
	}
}

func (s *Limits) noteAnswer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		s.say(slog.LevelInfo, "ratelimit: changed limits are read again", slog.Duration("after", time.Since(s.down)))
	}
	s.failed = nil
}

// applyAgain judges the limits that were read last, because the program may have set others since. The caller holds
// looking.
func (s *Limits) applyAgain() {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		s.apply(held)
	}
}

// apply puts the limits of a hash in force. The caller holds looking.
func (s *Limits) apply(held map[string]string) {
	program := s.limiter.ProgramLimits()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findLost(held)
	s.log = history(held)

	verdicts := make(map[string]*verdict)
	over, why := make(map[string]ratelimit.Limit), make(map[string]string)
	for name, raw := range s.values(held) {
		v := judge(name, raw, program[name], s.cfg.MaxFactor)
		verdicts[name] = &v
		if v.refused == nil {
			over[name], why[name] = v.limit, v.why()
		}
	}
	if !maps.Equal(over, s.over) || !maps.Equal(why, s.why) {
		var overrides []ratelimit.Override
		for name, limit := range over {
			overrides = append(overrides, ratelimit.Override{Policy: name, Limit: limit, Why: why[name]})
		}
		if err := s.limiter.Override(overrides); err != nil {
			s.say(slog.LevelWarn, "ratelimit: changed limits are not applied", slog.String("error", logtext.Show(err.Error(), maxShown)))
			return
		}
		s.over, s.why = over, why
	}
	s.note(verdicts, program)
	s.verdicts = verdicts
}

// why says who made a change.
func (v *verdict) why() string {
	text := "set by " + v.By + " at " + v.at.Format(time.RFC3339)
	if v.Why != "" {
		text += " (" + v.Why + ")"
	}
	return text
}

// values returns the values of a hash and those that are lost, by policy.
func (s *Limits) values(held map[string]string) map[string]string {
	values := maps.Clone(s.lost)
	if values == nil {
		values = make(map[string]string)
	}
	for name, raw := range held {
		if !strings.HasPrefix(name, "#") {
			values[name] = raw
		}
	}
	return values
}

// findLost notes the values that have disappeared because the hash has: by FLUSHALL, an eviction, or a failover to a server
// without them. A hash that was made anew has another '#since'. One that was set back lacks the last change.
func (s *Limits) findLost(held map[string]string) {
	before := s.held
	s.held = held
	count, _ := strconv.ParseInt(held["#n"], 10, 64)
	since := held["#since"]
	last := "#" + strconv.FormatInt((s.count-1)%maxLogged, 10)
	other := before[last] != "" && held[last] != before[last] && count < s.count+maxLogged
	if s.since != "" && (since != s.since || other) {
		for name, v := range s.verdicts {
			if held[name] == "" && v.refused == nil {
				if s.lost == nil {
					s.lost = make(map[string]string)
				}
				s.lost[name] = v.raw
			}
		}
	}
	for name := range s.lost {
		k, _ := parseKept(s.lost[name])
		if held[name] != "" || endedIn(held, name, k.at) {
			delete(s.lost, name)
		}
	}
	if since != "" {
		s.since, s.count = since, count
	}
	if len(s.lost) > 0 && time.Since(s.warned) >= logEvery {
		s.warned = time.Now()
		s.say(slog.LevelWarn, "ratelimit: changed limits have disappeared from Redis: they stay in force until this program restarts; set them again, or end them",
			slog.String("policies", strings.Join(slices.Sorted(maps.Keys(s.lost)), ", ")))
	}
}

// note logs what is new.
func (s *Limits) note(now map[string]*verdict, program programLimits) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		v, was := now[name], s.verdicts[name]
		if was != nil && was.raw == v.raw && (was.refused == nil) == (v.refused == nil) {
			continue
		}
		attrs := []slog.Attr{slog.String("policy", logtext.Show(name, 64))}
		if v.refused != nil {
			attrs = append(attrs, slog.String("error", v.refused.Error()))
			s.say(slog.LevelWarn, "ratelimit: kept limit refused: the program's limit stays", attrs...)
			continue
		}
		attrs = append(attrs, slog.String("limit", v.limit.String()), slog.String("program", program.shown(name).String()),
			slog.String("by", v.By), slog.Time("at", v.at), slog.String("why", v.Why), slog.Bool("forced", v.Forced))
		s.say(slog.LevelInfo, "ratelimit: limit changed", attrs...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.verdicts)) {
		if now[name] == nil && s.verdicts[name].refused == nil {
			s.say(slog.LevelInfo, "ratelimit: change of a limit ended", slog.String("policy", logtext.Show(name, 64)), slog.String("limit", program.shown(name).String()))
		}
	}
}

func (s *Limits) editor() *Editor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Editor{Keeper: s.keeper, program: s.limiter.ProgramLimits(), MaxFactor: s.cfg.MaxFactor, lost: maps.Clone(s.lost)}
}

// Set changes a limit. This replica has it when Set returns, all others within two seconds.
//
// If nothing was changed, the error is an [ErrConflict], a *[FactorError], or an [ErrRefused] that says what is wrong with
// the change. After another error it is not known whether the change was made: look at [Limits.List].
func (s *Limits) Set(ctx context.Context, c Change) error {
	return s.changed(ctx, s.editor().Set(ctx, c))
}

// End ends the change of a policy: the program's limit is in force again. It does not use c.Limit and c.Force. Its errors
// are those of [Limits.Set].
func (s *Limits) End(ctx context.Context, c Change) error {
	return s.changed(ctx, s.editor().End(ctx, c))
}

// changed applies a change here.
func (s *Limits) changed(ctx context.Context, err error) error {
	if err == nil {
		s.keepLost(ctx)
		s.look(ctx) // if it fails, the next look applies the change
	}
	return err
}

// keepLost writes the limits again that had disappeared, now that an operator has changed one of them.
func (s *Limits) keepLost(ctx context.Context) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.mu.Lock()
	lost := maps.Clone(s.lost)
	s.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	held, err := load(ctx, s.keeper)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.findLost(held)
	lost = maps.Clone(s.lost)
	s.mu.Unlock()
	e := Editor{Keeper: s.keeper}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		if k, err := decodeKept(lost[name]); err == nil {
			e.swap(ctx, name, "", &k, kept{}) // an error leaves it lost
		}
	}
}

// List returns the policies of the Limiter, and further names that are kept, by name. It reads only memory: it is what this
// replica enforces.
func (s *Limits) List() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	program := programLimits(s.limiter.ProgramLimits())
	names := make(map[string]bool)
	for name := range program {
		if program.shown(name) != (ratelimit.Limit{}) {
			names[name] = true
		}
	}
	for name := range s.verdicts {
		names[name] = true
	}
	var list []Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, entry(name, program[name], s.verdicts[name]))
	}
	return list
}

// History returns the log of the last 50 changes as this replica has read it, the newest first.
func (s *Limits) History() []Logged {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Problem says what is wrong with the kept limits, in a sentence: they cannot be read, or they have disappeared. "" if all
// is well.
func (s *Limits) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failed != nil:
		return fmt.Sprintf("The kept limits cannot be read since %s: %s. The limits in force stay.", s.down.UTC().Format(time.TimeOnly), logtext.Show(s.failed.Error(), maxShown))
	case len(s.lost) > 0:
		return fmt.Sprintf("The changed limits of %s have disappeared from Redis. They stay in force until the program restarts. Set or end one of them to keep the others again.", strings.Join(slices.Sorted(maps.Keys(s.lost)), ", "))
	}
	return ""
}
