package simulate

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/keyhash"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A simulation is one call of Run.
type simulation struct {
	cfg     Config
	setup   setup
	engine  *engine
	reader  *accesslog.Reader
	read    int64 // bytes of the logs as they are stored
	tallies []*tally
	times   *timeline
	bad     [accesslog.Reasons]*report.BadLines
	secret  []byte // nil: keys are shown
	out     *decisions

	report   report.Report
	from, to int64
	before   int64 // time of the line before
	backMost int64
	fraction int64 // the finest digit of a time, in microseconds
	limited  int64 // requests that were answered 429
	files    []fileTimes
}

// fileTimes are the first and the last time of a file.
type fileTimes struct {
	seen        bool
	first, last int64
}

func run(ctx context.Context, cfg Config, s setup) (*report.Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, cfg.memory(s.policies)))
	defer debug.SetMemoryLimit(before)

	begin := time.Now()
	sim, err := newSimulation(cfg, s)
	if err != nil {
		return nil, err
	}
	defer sim.engine.close()
	if err = sim.logs(ctx); err == nil {
		err = sim.rest()
	}
	sim.finish(time.Since(begin))
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case sim.report.Requests == 0:
		err = sim.nothing()
	}
	return &sim.report, err
}

func newSimulation(cfg Config, s setup) (*simulation, error) {
	engine, err := newEngine(s, cfg.buckets(len(s.policies)))
	if err != nil {
		return nil, err
	}
	reader, err := cfg.reader(engine.virtual)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	sim := &simulation{cfg: cfg, setup: s, engine: engine, reader: reader, times: newTimeline(len(s.policies)), fraction: 1_000_000, files: make([]fileTimes, len(cfg.Logs))}
	for _, p := range s.policies {
		sim.tallies = append(sim.tallies, newTally(p, s.on[p.Name], cfg.Clients))
	}
	if cfg.HideKeys {
		sim.secret = make([]byte, 32)
		rand.Read(sim.secret)
	}
	if cfg.Decisions != nil {
		sim.out = newDecisions(cfg.Decisions)
	}
	sim.report = report.Report{Version: report.Version, Clients: int64(cfg.Clients)}
	for _, log := range cfg.Logs {
		sim.report.Files = append(sim.report.Files, log.Name)
	}
	return sim, nil
}

// logs decides about all lines of the logs. The error is that of writing decisions.
func (s *simulation) logs(ctx context.Context) error {
	r := &s.report
	defer s.progress()
	shown := time.Now()
	for i, log := range s.cfg.Logs {
		for entry, fault := range s.reader.Lines(counted{log, &s.read}) {
			if ctx.Err() != nil {
				r.Incomplete = true
				return nil
			}
			r.Lines++
			r.Bytes, r.Format = s.reader.Bytes(), s.reader.Format()
			if r.Lines%1024 == 0 && time.Since(shown) > progressEvery {
				s.progress()
				shown = time.Now()
			}
			if fault != nil {
				s.fault(i, fault)
			} else if err := s.entry(i, entry); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			r.Incomplete = true
			return nil
		}
	}
	return nil
}

func (s *simulation) progress() {
	if s.cfg.Progress != nil {
		s.cfg.Progress(Progress{Lines: s.report.Lines, Read: s.read, Size: s.cfg.size()})
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	read *int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.read += int64(n)
	return n, err
}

// rest decides about the requests that still wait after the last line.
func (s *simulation) rest() error {
	if err := s.engine.advance(math.MaxInt64, s.passed); err != nil {
		return err
	}
	return s.out.flush()
}

// entry decides about a line.
func (s *simulation) entry(file int, entry *accesslog.Entry) error {
	s.noteTime(file, entry)
	s.report.Requests++
	if entry.Status == 429 {
		s.limited++
	}
	if err := s.engine.advance(entry.Time, s.passed); err != nil {
		return err
	}
	p, freely := s.engine.decide(file, entry)
	var err error
	if p != nil {
		err = s.passed(p)
	}
	for i := range freely {
		o := &freely[i]
		s.tallies[o.policy].alone(o, entry.Time)
	}
	return err
}

// passed counts what was decided about a request.
func (s *simulation) passed(p *passage) error {
	for i := range p.outcomes {
		o := &p.outcomes[i]
		s.tallies[o.policy].decided(o, p.time)
		s.times.count(o.policy, p.time, !o.allowed)
	}
	for i := range p.refusals {
		if refusal := &p.refusals[i]; refusal.policy >= 0 {
			s.tallies[refusal.policy].refused(refusal.kind())
		}
	}
	if s.out == nil {
		return nil
	}
	return s.out.write(s, p)
}

// noteTime notes when a line was written.
func (s *simulation) noteTime(file int, entry *accesslog.Entry) {
	now := entry.Time
	if s.report.Requests == 0 {
		s.from, s.to, s.before = now, now, now
	}
	if now < s.before {
		s.report.Backwards++
		s.backMost = max(s.backMost, s.before-now)
	}
	s.from, s.to, s.before = min(s.from, now), max(s.to, now), now
	for now%s.fraction != 0 {
		s.fraction /= 1000
	}
	f := &s.files[file]
	if !f.seen {
		*f = fileTimes{true, now, now}
	}
	f.first, f.last = min(f.first, now), max(f.last, now)
}

// shownLine is how much of a bad line is shown, in bytes.
const shownLine = 160

func (s *simulation) fault(file int, f *accesslog.Fault) {
	b := s.bad[f.Reason]
	if b == nil {
		b = &report.BadLines{Reason: f.Reason.String(), Remedy: f.Reason.Remedy()}
		s.bad[f.Reason] = b
	}
	b.Lines++
	if len(b.Examples) < 3 {
		text := f.Text
		switch {
		case f.Err != nil:
			text = f.Err.Error()
		case s.secret != nil:
			text = "(hidden)" // it may hold a key
		}
		b.Examples = append(b.Examples, report.BadLine{File: s.cfg.Logs[file].Name, Line: f.Line, Text: logtext.Show(text, shownLine)})
	}
}

// finish completes the report.
func (s *simulation) finish(took time.Duration) {
	r := &s.report
	r.Took = took.Seconds()
	for _, b := range s.bad {
		if b != nil {
			r.Bad = append(r.Bad, *b)
		}
	}
	if r.Requests > 0 {
		r.From, r.To = timeOf(s.from), timeOf(s.to)
		r.Resolution = time.Duration(s.fraction) * time.Microsecond
		r.Seconds = r.Resolution.Seconds()
	}
	r.BackwardsMost = seconds(s.backMost)
	for _, n := range s.engine.buckets.Stats().Memory.Evicted {
		r.Evicted += n
	}
	for i, t := range s.tallies {
		p := t.report(s.cfg.Spare, s.name)
		p.When = s.times.of(i)
		p.Unknown = s.unknownOf(t)
		r.Policies = append(r.Policies, p)
	}
	for _, m := range s.setup.leftOut {
		r.LeftOut = append(r.LeftOut, m.Policy.Name)
	}
	r.Unknown = s.unknown()
}

// nothing is the error for logs without a request.
func (s *simulation) nothing() error {
	for _, b := range s.report.Bad {
		if b.Reason != accesslog.Empty.String() && len(b.Examples) > 0 {
			at := b.Examples[0]
			text := fmt.Sprintf("%s:%d: %s", logtext.Show(at.File, 200), at.Line, b.Reason)
			if b.Remedy != "" {
				text += ": " + b.Remedy
			}
			return fmt.Errorf("simulate: %w: %s", ErrNothing, text)
		}
	}
	return fmt.Errorf("simulate: %w: the logs are empty", ErrNothing)
}

// name returns the name of a key in the report.
func (s *simulation) name(key string) string {
	if s.secret != nil {
		return keyhash.Name(s.secret, key)
	}
	if len(key) > 0 && key[0] == 0xff {
		return fmt.Sprintf("(a long key, SHA-256 %x…)", key[1:9])
	}
	return key
}
