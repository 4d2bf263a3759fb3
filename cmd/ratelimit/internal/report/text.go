package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// Text writes the report for people, in at most so many columns, which are at least 40. With color it has the escape
// sequences of a terminal.
func (r *Report) Text(w io.Writer, color Paint, columns int) error {
	t := &text{Paint: color, clock: r.Clock(), columns: max(narrowest, columns), bound: r.Clients}
	t.report(r)
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *text) report(r *Report) {
	if r.Incomplete {
		t.sayIn(Yellow, "", "INCOMPLETE: the simulation was interrupted. This is the log up to there.")
	}
	if r.Requests == 0 {
		t.sayIn(Yellow, "", r.Source())
	} else {
		t.say("", r.Source()+".")
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		t.sayIn(Bold, "", key(p.Name, 30)+": "+p.Advice())
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
		name := key(p.Name, 30)
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
		title += " on " + key(p.On, 100)
	}
	title = Middle(title, t.columns-2)
	t.line("%s", t.In(Bold, title+" "+strings.Repeat("─", t.columns-1-width(title))))
	t.sayIn(p.color(), "", p.Outcome())
	if when := p.Denials(t.clock); when != "" {
		t.say("", when)
	}
	for _, note := range p.Notes(t.bound) {
		t.say("", note)
	}
	if rule := p.Rule(); rule != "" {
		t.say("", rule)
	}
	t.over(p)
	t.worst(p)
	t.spare(p)
	t.curve(p)
}

// over draws the denials over time in a line.
func (t *text) over(p *Policy) {
	if p.Peak().Denied == 0 || p.Length() == 0 {
		return
	}
	part := *p
	for len(part.When)+columnGap > t.columns {
		part.When = pairs(part.When)
	}
	most, length, line := part.Peak(), part.Length(), ""
	for _, s := range part.When {
		if s.Denied == 0 {
			line += "·"
			continue
		}
		line += string([]rune("▁▂▃▄▅▆▇█")[min(7, 8*s.Denied/(most.Denied+1))])
	}
	t.line("")
	t.say("  ", fmt.Sprintf("denied, in parts of %s, at most %s", numbers.Span(length), numbers.Count(most.Denied)))
	t.line("  %s", line)
	from, to := t.clock.Of(part.When[0].From, length), t.clock.Of(part.End(), length)
	t.line("  %s %s", from, pad(to, len(part.When)-len(from)-1, 'r'))
}

// pairs joins each two spans. The last of an odd number has the length of the others, too.
func pairs(spans []Span) (joined []Span) {
	for two := range slices.Chunk(spans, 2) {
		s := two[0]
		for _, more := range two[1:] {
			s.Requests += more.Requests
			s.Denied += more.Denied
		}
		joined = append(joined, s)
	}
	return joined
}

func (t *text) worst(p *Policy) {
	if len(p.Worst) == 0 {
		return
	}
	var rows [][]string
	for _, c := range p.Worst {
		rows = append(rows, []string{
			key(c.Key, t.columns), numbers.Count(c.Denied), numbers.Count(c.Requests), share(c.Denied, c.Requests),
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
	if spared := p.Spared(); spared != "" {
		t.say("", spared)
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
	var rows [][]string
	for _, at := range p.Curve {
		rows = append(rows, []string{
			key(at.Limit, 30), numbers.Count(at.RequestsDenied), share(at.RequestsDenied, p.AloneRequests),
			numbers.Count(at.ClientsDenied), share(at.ClientsDenied, p.AloneClients), bar(at.ClientsDenied, p.AloneClients) + own(at.Own, " ← the policy"),
		})
	}
	t.line("")
	t.table("lrrrrl", []string{"limits, each alone", "requests denied", "", "clients denied", "", axis}, rows, nil)
}

// The axis of the bars. The share of clients that near names is at 3/4 of it.
const (
	axisColumns = 24
	axis        = "0 %            5 % 100 %"
	near        = 0.05
)

// place returns where a share stands on the axis, from 0 to 1. The part up to near has most of the room: limits that are
// worth choosing are there.
func place(share float64) float64 {
	if share <= near {
		return 0.75 * share / near
	}
	return 0.75 + 0.25*(min(share, 1)-near)/(1-near)
}

// bar draws n of all on the axis, in eighths of a column.
func bar(n, all int64) string {
	if n == 0 {
		return ""
	}
	eighths := max(1, int(place(part(n, all))*8*axisColumns+0.5))
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
	t.sayIn(Yellow, "", fmt.Sprintf("Could not be read: %s (%s)", numbers.Of(r.BadLines(), "line"), share(r.BadLines(), r.Lines)))
	for _, b := range r.Bad {
		remedy := ""
		if b.Remedy != "" {
			remedy = " Remedy: " + b.Remedy
		}
		t.say("  - ", numbers.Of(b.Lines, "line")+": "+b.Reason+"."+remedy)
		for _, e := range b.Examples {
			at := fmt.Sprintf("    %s:%d: ", key(e.File, min(40, t.columns/3)), e.Line)
			t.line("%s", cut(at+shown(e.Text), t.columns))
		}
	}
}
