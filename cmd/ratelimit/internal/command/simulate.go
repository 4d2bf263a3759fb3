package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

var simulateCommand = &command{
	name:  "simulate",
	args:  "LOG…",
	short: "Reports what policies would have done with the requests of access logs.",
	long: `It decides about each line with the code of the limiter, at the time of the line. Logs are in the format
common or combined, or JSON lines, also gzipped. "-" is standard input. Give several logs oldest first.`,
	examples: []string{
		"ratelimit simulate -policies limits.yaml -html report.html access.log.2.gz access.log.1",
		"kubectl logs deploy/web | ratelimit simulate -policies limits.yaml -format json -map time=ts,addr=ip -",
		"ratelimit simulate -policies limits.yaml -exclude ip:192.0.2.7 -exclude ip:192.0.2.9 access.log",
		"ratelimit simulate -policies limits.yaml -extra X-Forwarded-For -spare 99.5% -fail-above 1% -json access.log",
	},
	prepare: func(f *flags) func(context.Context, *env) error {
		var s simulation
		s.policies = f.text("policies", "`FILE` of policies (required)")
		s.names = defineNames(f)
		s.format = f.text("format", "`FORMAT` of the logs: common, combined or json (default: found out from the first lines)")
		s.fields = f.text("map", "`FIELDS` of JSON lines, such as time=ts,addr=client.ip,header.X-Key=key")
		s.extra = f.text("extra", "`HEADERS` in the further quoted fields of a combined log, with commas between them, such as X-Forwarded-For")
		s.spare = f.share("spare", "99.9%", "`SHARE` of the clients that must not be denied, for the smallest limits that do so (default 99.9%)", func(x float64) bool { return x > 0 && x <= 1 })
		f.add("exclude", "`KEY` of a client that no advice is for, as the report shows it, may be repeated. Outliers are left out anyway", func(key string) error {
			s.exclude = append(s.exclude, key)
			return nil
		})
		s.clients = f.number("clients", simulate.DefaultClients, simulate.MaxClients, "`NUMBER` of keys of each policy that have a line of their own. It bounds the memory")
		s.hide = f.is("hide-keys", "show keys as HMACs under a random secret")
		s.json = f.is("json", "write JSON")
		s.html = f.text("html", "`FILE` to write the report to as a page with pictures, too")
		s.decisions = f.text("decisions", "`FILE` to write a JSON line to for each request and policy")
		s.failAbove = f.share("fail-above", "1%", "`SHARE` of its requests that a policy may deny. If one denies more, or cannot be judged, the exit status is 1. A Shadow denies none", func(x float64) bool { return x >= 0 && x <= 1 })
		*s.failAbove = -1 // not given
		return s.run
	},
}

// A simulation is what the flags of simulate say.
type simulation struct {
	policies, names, format, fields, extra, html, decisions *string
	spare, failAbove                                        *float64
	exclude                                                 []string
	clients                                                 *int
	hide, json                                              *bool
}

func (s *simulation) run(ctx context.Context, e *env) error {
	if len(e.args) == 0 {
		return wrongUsage("LOG is missing, such as access.log; - is standard input")
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	if cfg.Policies, err = loadPolicies(*s.policies, *s.names, e); err != nil {
		return err
	}
	if !slices.ContainsFunc(cfg.Policies.Policies(), func(p ratelimit.Policy) bool { return !simulate.HasSlots(p) }) {
		return fmt.Errorf("-policies: %s: no policy is left: a log does not say how many requests ran at once, as the limits of these policies need", show(*s.policies))
	}
	logs, size, closeLogs, err := openLogs(ctx, e)
	defer closeLogs()
	if err != nil {
		return err
	}
	cfg.Logs = logs
	page, decisions, err := s.files(e.args)
	if err != nil {
		return err
	}
	defer page.Close()
	defer decisions.Close()
	if decisions != nil {
		cfg.Decisions = decisions
	}

	fmt.Fprintf(e.err, "ratelimit simulate: memory: at most %s with -clients %s\n", numbers.Size(cfg.Memory()), numbers.Count(cfg.Clients))
	end := showProgress(logs, size, e)
	r, err := simulate.Run(ctx, cfg)
	end()
	if errors.Is(err, simulate.ErrExclude) {
		return wrongUsage("-exclude: %v", trim(err))
	}
	if r == nil {
		return trim(err)
	}
	if page != nil {
		if err := errors.Join(r.HTML(page), page.Close()); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
	}
	write := func(w io.Writer) error { return r.Text(w, e.paint, e.columns) }
	if *s.json {
		write = r.JSON
	}
	if err := write(e.out); err != nil {
		return err
	}
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprint(e.err, "ratelimit simulate: interrupted: the report has the lines that were read until then\n")
		return ended(interrupted)
	case err != nil:
		return trim(err)
	}
	return ended(s.judge(r, e))
}

// files creates the files that are written.
func (s *simulation) files(logs []string) (page, decisions *os.File, err error) {
	const read = "one of the logs, or the file of -policies"
	reads := append(slices.Clone(logs), *s.policies)
	err = cmp.Or(differ("-html", *s.html, read, reads...), differ("-decisions", *s.decisions, read, reads...), differ("-decisions", *s.decisions, "the file of -html", *s.html))
	if err == nil {
		page, err = create("-html", *s.html)
	}
	if err == nil {
		decisions, err = create("-decisions", *s.decisions)
	}
	return page, decisions, err
}

// config returns what the flags say of the logs.
func (s *simulation) config() (cfg simulate.Config, err error) {
	cfg = simulate.Config{Format: *s.format, Spare: *s.spare, Exclude: s.exclude, Clients: *s.clients, HideKeys: *s.hide, Fields: make(map[string]string)}
	cfg.Extra = words(*s.extra)
	for _, pair := range words(*s.fields) {
		ours, theirs, ok := strings.Cut(pair, "=")
		if !ok || ours == "" || theirs == "" {
			return cfg, wrongUsage("-map: %s: must be like time=ts, with a name of this command and one of the log", shown(pair))
		}
		if _, twice := cfg.Fields[ours]; twice {
			return cfg, wrongUsage("-map: %s: is there twice", shown(ours))
		}
		cfg.Fields[ours] = theirs
	}
	if _, err := accesslog.NewReader(accesslog.Config{Format: cfg.Format, Fields: cfg.Fields, Extra: cfg.Extra}); err != nil {
		return cfg, wrongUsage("%v", err)
	}
	return cfg, nil
}

// broken says which logs cannot be read to their end, and reports whether there are any.
func broken(r *report.Report, e *env) bool {
	i := slices.IndexFunc(r.Bad, func(b report.BadLines) bool { return b.Reason == accesslog.BrokenFile.Text })
	if i < 0 {
		return false
	}
	for _, at := range r.Bad[i].Examples {
		fmt.Fprintf(e.err, "ratelimit simulate: %s: %s: the report lacks what comes after line %d\n", show(at.File), show(at.Text), at.Line)
	}
	return true
}

// judge returns the exit status by -fail-above. A check of CI must not pass because nothing was decided.
func (s *simulation) judge(r *report.Report, e *env) int {
	status, isBroken := done, broken(r, e)
	if *s.failAbove < 0 {
		return status
	}
	fail := func(format string, args ...any) {
		fmt.Fprintf(e.err, "ratelimit simulate: "+format+"\n", args...)
		status = found
	}
	if r.BadLines() > r.Requests {
		fail("most lines could not be read, so that -fail-above says little: see the report")
	}
	if isBroken {
		fail("a log cannot be read to its end, so that -fail-above cannot be checked")
	}
	for _, name := range r.LeftOut {
		fail("policy %s is left out, so that -fail-above cannot be checked", show(name))
	}
	for _, p := range r.Policies {
		if p.Shadow {
			continue
		}
		if p.Requests == 0 {
			if p.NoKey+p.BadKey+p.Failed > 0 {
				fail("policy %s found no key in any request, so that -fail-above cannot be checked: see -map and -extra", show(p.Name))
			}
			continue
		}
		if share := float64(p.RequestsDenied) / float64(p.Requests); share > *s.failAbove {
			fail("policy %s denies %.3g%% of its requests, which is more than -fail-above %.3g%%", show(p.Name), 100*share, 100**s.failAbove)
		}
	}
	return status
}
