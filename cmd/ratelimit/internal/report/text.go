package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// Text writes the report for people, in at most 100 columns. With color it has the escape sequences of a terminal.
func (r *Report) Text(w io.Writer, color Paint) error {
	t := &text{Paint: color, clock: r.Clock(), bound: r.Clients}
	t.report(r)
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *text) report(r *Report) {
	if r.Incomplete {
		t.line("%s", t.In(Yellow, "INCOMPLETE: the simulation was interrupted. This is the log up to there."))
	}
	if r.Requests == 0 {
		t.line("%s", t.In(Yellow, r.Source()))
	} else {
		t.say("", r.Source()+".")
	}
	if left := r.LeftOutNames(); left != "" {
		t.sayIn(Yellow, "", left+": see below.")
	}
	if bad := r.BadText(); bad != "" {
		t.say("", bad+": see below.")
	}
	if len(r.Policies) > 1 {
		t.verdicts(r)
	}
	for i := range r.Policies {
		t.policy(&r.Policies[i])
	}
	t.unknown(r)
	t.bad(r)
	t.line("")
	for _, sentence := range r.Reading() {
		t.say("", sentence)
	}
}

// verdicts is the table of all policies.
func (t *text) verdicts(r *Report) {
	var rows [][]string
	for i := range r.Policies {
		p := &r.Policies[i]
		name := key(p.Name, 24)
		if p.Shadow {
			name += " (shadow)"
		}
		rows = append(rows, []string{
			name, key(p.Limit, 26),
			numbers.Count(p.RequestsDenied), share(p.RequestsDenied, p.Requests),
			numbers.Count(p.ClientsDenied), share(p.ClientsDenied, p.Clients),
		})
	}
	t.line("")
	t.table("llrrrr", []string{"policy", "limit", "requests denied", "", "clients denied", ""}, rows, func(row int, line string) string {
		return t.In(r.Policies[row].color(), line)
	})
}

// color is that of the verdict.
func (p *Policy) color() string {
	switch {
	case p.RequestsDenied == 0 && p.Failed == 0 && p.BadKey == 0:
		return Green
	case p.Shadow:
		return Yellow
	}
	return Red
}

func (t *text) policy(p *Policy) {
	t.line("")
	title := key(p.Name, 30) + ": " + key(p.Limit, 30)
	if p.On != "" {
		title += " on " + key(p.On, columns-width(title)-8)
	}
	t.line("%s", t.In(Bold, title+" "+strings.Repeat("─", max(0, columns-1-width(title)))))
	t.sayIn(p.color(), "", p.Verdict())
	if when := p.Denials(t.clock); when != "" {
		t.say("", when)
	}
	for _, note := range p.Notes(t.bound) {
		t.say("", note)
	}
	t.over(p)
	t.worst(p)
	t.spare(p)
	t.curve(p)
}

// over draws the denials over time in a line.
func (t *text) over(p *Policy) {
	most, length := p.Peak(), p.Length()
	if most.Denied == 0 || length == 0 {
		return
	}
	line := ""
	for _, s := range p.When {
		if s.Denied == 0 {
			line += "·"
			continue
		}
		line += string([]rune("▁▂▃▄▅▆▇█")[min(7, 8*s.Denied/(most.Denied+1))])
	}
	t.line("")
	t.line("  denied, in parts of %s, at most %s", numbers.Span(length), numbers.Count(most.Denied))
	t.line("  %s", line)
	from, to := t.clock.Of(p.When[0].From, length), t.clock.Of(p.End(), length)
	t.line("  %s %s", from, pad(to, len(p.When)-len(from)-1, 'r'))
}

func (t *text) worst(p *Policy) {
	if len(p.Worst) == 0 {
		return
	}
	var rows [][]string
	for _, c := range p.Worst {
		rows = append(rows, []string{
			key(c.Key, 30), numbers.Count(c.Denied), numbers.Count(c.Requests), share(c.Denied, c.Requests),
			t.clock.Of(c.First, time.Minute), t.clock.Of(c.Last, time.Minute), c.Wait(c.Longest), c.Wait(c.Total),
		})
	}
	t.line("")
	t.table("lrrrrrrr", []string{"worst clients", "denied", "of requests", "", "first", "last", "longest wait", "waits in all"}, rows, nil)
}

func (t *text) spare(p *Policy) {
	if p.Spare == nil || len(p.Spare.Limits) == 0 {
		return
	}
	t.line("")
	if advice := p.Advice(); advice != "" {
		t.say("", advice)
	}
	var rows [][]string
	for _, l := range p.Spare.Limits {
		rows = append(rows, []string{key(l.Limit, 40), numbers.Count(l.ClientsDenied), share(l.ClientsDenied, p.AloneClients), own(l.Own, "← "+p.OwnRate())})
	}
	t.table("lrrl", []string{"each spares " + numbers.Percent(p.Spare.Share), "clients denied", "", " "}, rows, nil)
}

func own(own bool, text string) string {
	if own {
		return text
	}
	return ""
}

// curve is a table with a bar for the share of clients.
func (t *text) curve(p *Policy) {
	if len(p.Curve) == 0 {
		return
	}
	most := p.MostClients()
	var rows [][]string
	for _, at := range p.Curve {
		rows = append(rows, []string{
			key(at.Limit, 30), numbers.Count(at.RequestsDenied), share(at.RequestsDenied, p.AloneRequests),
			numbers.Count(at.ClientsDenied), share(at.ClientsDenied, p.AloneClients), bar(at.ClientsDenied, most) + own(at.Own, " ← the policy"),
		})
	}
	t.line("")
	t.table("lrrrrl", []string{"limits, each alone", "requests denied", "", "clients denied", "", " "}, rows, nil)
}

// bar draws n of most in up to 20 columns, in eighths of one.
func bar(n, most int64) string {
	if n == 0 {
		return ""
	}
	eighths := max(1, int(part(n, most)*160+0.5))
	line := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		line += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return line
}

func (t *text) unknown(r *Report) {
	say := slices.Clone(r.Unknown)
	for _, p := range r.Policies {
		for _, sentence := range p.Unknown {
			say = append(say, key(p.Name, 30)+": "+sentence)
		}
	}
	if len(say) == 0 {
		return
	}
	t.line("")
	t.line("%s", t.In(Bold, "What this cannot know"))
	for _, sentence := range say {
		t.say("  - ", sentence)
	}
}

func (t *text) bad(r *Report) {
	if len(r.Bad) == 0 {
		return
	}
	t.line("")
	t.line("%s", t.In(Yellow, fmt.Sprintf("Could not be read: %s (%s)", numbers.Of(r.BadLines(), "line"), share(r.BadLines(), r.Lines))))
	for _, b := range r.Bad {
		remedy := ""
		if b.Remedy != "" {
			remedy = " Remedy: " + b.Remedy
		}
		t.say("  - ", numbers.Of(b.Lines, "line")+": "+b.Reason+"."+remedy)
		for _, e := range b.Examples {
			at := fmt.Sprintf("    %s:%d: ", key(e.File, 40), e.Line)
			t.line("%s%s", at, cut(shown(e.Text), columns-width(at)))
		}
	}
}
