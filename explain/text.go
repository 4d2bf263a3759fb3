package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// String returns the explanation as a text for people, for a terminal or a log. Lines have at most 100 columns. It begins
// with the request, what could not be followed, and the answer. Then follows each policy with its key, limit and bucket,
// and at the end the headers that the client gets.
func (e *Explanation) String() string {
	var t text
	t.line(0, "%s %s", show(e.Method), show(e.Host+e.Path))
	if e.Peer != "" {
		t.line(1, "from %s", show(e.Peer))
	}
	if e.Route != "" {
		t.line(1, "route %s", show(e.Route))
	}
	if !e.At.IsZero() {
		t.line(1, "at %s", e.At.UTC().Format(time.RFC3339))
	}
	if len(e.Unknown) > 0 {
		t.blank()
		t.line(0, "Not known:")
		for _, unknown := range e.Unknown {
			t.item(1, "- ", printable(unknown))
		}
	}
	t.blank()
	t.line(0, "%s", e.answer())
	if e.Degraded {
		t.line(0, "A stand-in for the store would decide. Times are lower bounds.")
	}
	for i := range e.Limiters {
		t.blank()
		t.limiter(i+1, &e.Limiters[i])
	}
	t.header(e)
	return t.b.String()
}

func (e *Explanation) answer() string {
	switch {
	case e.Status != 0:
		return strings.TrimSpace(fmt.Sprintf("It would be answered %d %s", e.Status, http.StatusText(e.Status))) + "."
	case len(e.Limiters) == 0:
		return "It would reach the handler. No call of Handler or Limit would decide about it."
	case e.Wait > 0:
		return "It would wait " + duration(e.Wait) + ", and then reach the handler."
	default:
		return "It would reach the handler."
	}
}

func (t *text) limiter(number int, l *Limiter) {
	head := strconv.Itoa(number) + ". " + cmp.Or(show(l.Mounted), "Decide")
	if l.Pattern != "" {
		head += " at " + show(l.Pattern)
	}
	switch {
	case l.Skipped:
		head += ": skipped"
	case l.Allowed:
		head += ": goes on"
	default:
		head += ": refused"
	}
	t.line(0, "%s", head)
	if l.Err != "" {
		t.line(1, "%s", printable(l.Err))
	}
	for i := range l.Policies {
		t.policy(&l.Policies[i])
	}
}

func (t *text) policy(p *Policy) {
	t.line(1, "policy %s: %s", show(p.Name), printable(strings.ReplaceAll(p.Outcome, "_", " ")))
	if p.Why != "" {
		t.line(2, "%s", printable(p.Why))
	}
	if p.Key != "" {
		t.item(2, "key     ", show(p.Key))
	}
	if p.Limit != "" {
		limit := printable(p.Limit)
		if p.LimitWhy != "" {
			limit += " (" + printable(p.LimitWhy) + ")"
		}
		t.item(2, "limit   ", limit)
	}
	if p.Before != nil || p.After != nil {
		t.item(2, "cost    ", strconv.FormatInt(p.Cost, 10))
	}
	if p.Before != nil {
		t.item(2, "before  ", bucket(p.Before))
	}
	if p.After != nil {
		t.item(2, "after   ", bucket(p.After))
	}
	var options []string
	for _, o := range []struct {
		name string
		set  bool
	}{{"Shadow", p.Shadow}, {"Hidden", p.Hidden}, {"Optional", p.Optional}, {"FailClosed", p.FailClosed}} {
		if o.set {
			options = append(options, o.name)
		}
	}
	if len(options) > 0 {
		t.item(2, "options ", strings.Join(options, ", "))
	}
	if p.Found != nil {
		t.line(2, "how the key was found:")
		t.step(3, p.Found)
	}
}

func (t *text) step(level int, s *Step) {
	head := printable(s.By)
	switch {
	case s.Err != "":
		head += ": " + printable(strings.TrimPrefix(s.Err, "ratelimit: "))
	case s.Key != "":
		head += " = " + printable(s.Key)
	}
	t.item(level, "", head)
	for _, note := range s.Notes {
		t.item(level+1, "- ", printable(note))
	}
	for _, tried := range s.Tried {
		t.step(level+1, tried)
	}
}

func (t *text) header(e *Explanation) {
	if len(e.Header) > 0 {
		t.blank()
		if e.Status == 0 {
			t.line(0, "Headers that the handler's answer gets:")
		} else {
			t.line(0, "Headers of the answer:")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		for _, value := range e.Header[name] {
			t.item(1, show(name)+": ", printable(value))
		}
	}
	if e.Body != "" {
		t.blank()
		t.line(0, "Body of the answer:")
		for line := range strings.Lines(e.Body) {
			t.item(1, "", printable(strings.TrimRight(line, "\r\n")))
		}
	}
}

// bucket returns the state of a bucket in words.
func bucket(s *store.State) string {
	var parts []string
	part := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.Blocked {
		part("blocked for %s", duration(s.RetryAfter))
	}
	switch s.Remaining {
	case 1:
		part("1 token left")
	default:
		part("%d tokens left", s.Remaining)
	}
	switch {
	case s.ResetAfter <= 0:
		part("full")
	default:
		part("full in %s", duration(s.ResetAfter))
	}
	switch {
	case s.Allowed || s.Blocked:
	case s.RetryAfter == store.Never:
		part("can never pay this cost")
	default:
		part("can pay the cost in %s", duration(s.RetryAfter))
	}
	if s.Wait > 0 {
		part("its tokens come in %s", duration(s.Wait))
	}
	if s.Degraded {
		part("a stand-in answers")
	}
	return strings.Join(parts, ", ")
}

// duration returns d rounded up to a millisecond.
func duration(d time.Duration) string {
	if d == store.Never {
		return "ever"
	}
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d.String()
}
