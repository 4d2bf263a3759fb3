package simulate

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A simulation is one call of Run.
type simulation struct {
	cfg       Config
	setup     setup
	engine    *engine
	reader    *accesslog.Reader
	tallies   []*tally
	times     timeline
	secret    []byte // nil: keys are shown
	decisions *bufio.Writer
	encoder   *json.Encoder // writes decisions

	report   report.Report
	from, to int64
	before   int64 // time of the line before
	fraction int64 // the finest digit of a time, in microseconds
	limited  int64 // requests that were answered 429
}

func run(ctx context.Context, cfg Config, s setup) (*report.Report, error) {
	cfg.Spare = cmp.Or(cfg.Spare, 0.999)
	cfg.Clients = cmp.Or(cfg.Clients, DefaultClients)
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, cfg.memory(s.policies)))
	defer debug.SetMemoryLimit(before)

	begin := time.Now()
	sim, err := newSimulation(cfg, s)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	defer sim.engine.close()
	sim.logs(ctx)
	sim.report.Incomplete = ctx.Err() != nil
	sim.engine.advance(math.MaxInt64, sim.passed) // of the requests that still wait
	if sim.decisions != nil {
		err = sim.decisions.Flush() // it has the error of any write
	}
	excluded, unknown := sim.excluded()
	sim.finish(time.Since(begin), excluded)
	switch {
	case err != nil:
		err = fmt.Errorf("simulate: decisions: %w", err)
	case sim.report.Incomplete:
		err = ctx.Err()
	case sim.report.Requests == 0:
		err = sim.nothing()
	case unknown != nil:
		return nil, fmt.Errorf("simulate: %w", unknown)
	}
	return &sim.report, err
}

func newSimulation(cfg Config, s setup) (*simulation, error) {
	engine, err := newEngine(s, cfg.buckets(len(s.policies)))
	if err != nil {
		return nil, err
	}
	reader, err := accesslog.NewReader(accesslog.Config{Format: cfg.Format, Fields: cfg.Fields, Extra: cfg.Extra, Context: engine.virtual})
	if err != nil {
		return nil, err
	}
	sim := &simulation{cfg: cfg, setup: s, engine: engine, reader: reader, times: newTimeline(), fraction: 1_000_000}
	for _, p := range s.policies {
		sim.tallies = append(sim.tallies, newTally(p, s.on[p.Name], cfg.Clients))
	}
	if cfg.HideKeys {
		sim.secret = make([]byte, 32)
		rand.Read(sim.secret)
	}
	if cfg.Decisions != nil {
		sim.decisions = bufio.NewWriter(cfg.Decisions)
		sim.encoder = json.NewEncoder(sim.decisions)
	}
	sim.report = report.Report{Version: report.Version, Clients: int64(cfg.Clients)}
	for _, log := range cfg.Logs {
		sim.report.Files = append(sim.report.Files, log.Name)
	}
	return sim, nil
}

// logs decides about all lines of the logs.
func (s *simulation) logs(ctx context.Context) {
	r := &s.report
	for _, log := range s.cfg.Logs {
		for entry, fault := range s.reader.Lines(log) {
			if ctx.Err() != nil {
				return
			}
			r.Lines++
			r.Bytes, r.Format = s.reader.Bytes, s.reader.Format
			if fault != nil {
				s.fault(log.Name, fault)
			} else {
				s.entry(log.Name, entry)
			}
		}
	}
}

// entry decides about a line.
func (s *simulation) entry(file string, entry *accesslog.Entry) {
	s.noteTime(entry.Time)
	s.report.Requests++
	if entry.Status == 429 {
		s.limited++
	}
	s.engine.advance(entry.Time, s.passed)
	p, freely := s.engine.decide(file, entry)
	if p != nil {
		s.passed(p)
	}
	for i := range freely {
		o := &freely[i]
		s.tallies[o.policy].alone(o, entry.Time)
	}
}

// passed counts what was decided about a request.
func (s *simulation) passed(p *passage) {
	for i := range p.outcomes {
		o := &p.outcomes[i]
		s.tallies[o.policy].decided(o, p.time)
		s.times.count(o.policy, p.time, !o.Allowed)
	}
	for i := range p.refusals {
		if refusal := &p.refusals[i]; refusal.policy >= 0 {
			s.tallies[refusal.policy].refused(refusal.kind())
		}
	}
	if s.encoder != nil {
		s.write(p)
	}
}

// noteTime notes when a line was written.
func (s *simulation) noteTime(now int64) {
	if s.report.Requests == 0 {
		s.from, s.to, s.before = now, now, now
	}
	if now < s.before {
		s.report.Backwards++
		s.report.BackwardsMost = max(s.report.BackwardsMost, seconds(s.before-now))
	}
	s.from, s.to, s.before = min(s.from, now), max(s.to, now), now
	for now%s.fraction != 0 {
		s.fraction /= 1000
	}
}

// shownLine is how much of a bad line is shown, in bytes.
const shownLine = 160

func (s *simulation) fault(file string, f *accesslog.Fault) {
	r := &s.report
	i := slices.IndexFunc(r.Bad, func(b report.BadLines) bool { return b.Reason == f.Reason.Text })
	if i < 0 {
		i = len(r.Bad)
		r.Bad = append(r.Bad, report.BadLines{Reason: f.Reason.Text, Remedy: f.Reason.Remedy})
	}
	b := &r.Bad[i]
	b.Lines++
	if len(b.Examples) < 3 {
		text := f.Text
		switch {
		case f.Err != nil:
			text = f.Err.Error()
		case s.secret != nil:
			text = "(hidden)" // it may hold a key
		}
		b.Examples = append(b.Examples, report.BadLine{File: file, Line: f.Line, Text: logtext.Show(text, shownLine)})
	}
}

// finish completes the report.
func (s *simulation) finish(took time.Duration, excluded map[string]bool) {
	r := &s.report
	r.Took = took.Seconds()
	if r.Requests > 0 {
		r.From, r.To = timeOf(s.from), timeOf(s.to)
		r.Resolution = seconds(s.fraction)
	}
	for _, n := range s.engine.buckets.Stats().Memory.Evicted {
		r.Evicted += n
	}
	for i, t := range s.tallies {
		p := t.report(s.cfg.Spare, excluded, s.name)
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
		if b.Reason != accesslog.Empty.Text {
			at := b.Examples[0]
			return fmt.Errorf("simulate: %w: %s:%d: %s: %s", ErrNothing, logtext.Show(at.File, 200), at.Line, b.Reason, b.Remedy)
		}
	}
	return fmt.Errorf("simulate: %w: the logs are empty", ErrNothing)
}

// name returns the name of a short key in the report.
func (s *simulation) name(key string) string {
	if s.secret != nil {
		return keyname.Secret(s.secret, key)
	}
	return printed(key)
}

// printed returns the name of a short key that is not hidden.
func printed(key string) string {
	if key != "" && key[0] == 0xff { // a short name, of package keyname
		return fmt.Sprintf("(a long key, SHA-256 %x…)", key[1:9])
	}
	return key
}
