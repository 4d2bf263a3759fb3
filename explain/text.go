package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/store"
)

// String returns the explanation as a text for people, for a terminal or a log. It begins with the request, what is not known,
// and the answer. Then follows each policy with its key, limit and bucket, and at the end the headers that the client gets.
func (e *Explanation) String() string {
	t := new(text)
	t.line(0, "%s %s", e.Method, e.Host+e.Path)
	t.item(1, "from ", e.Peer)
	t.item(1, "route ", e.Route)
	if !e.At.IsZero() {
		t.line(1, "at %s", e.At.UTC().Format(time.RFC3339))
	}
	if len(e.Unknown) > 0 {
		t.line(0, "\nNot known:")
		for _, unknown := range e.Unknown {
			t.line(1, "- %s", unknown)
		}
	}
	t.line(0, "\n%s", e.Verdict())
	if e.Degraded {
		t.line(0, "A stand-in for the store would decide. Numbers of buckets are rough.")
	}
	for i := range e.Limiters {
		t.limiter(i+1, &e.Limiters[i])
	}
	if len(e.Header) > 0 {
		t.line(0, "\nHeaders that the limiter adds to the answer:")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		for _, value := range e.Header[name] {
			t.line(1, "%s: %s", name, value)
		}
	}
	return t.String()
}

// Verdict returns what would become of the request, in a sentence.
func (e *Explanation) Verdict() string {
	aborted := slices.ContainsFunc(e.Limiters, func(l Limiter) bool { return l.Met && !l.Allowed })
	switch {
	case e.Status != 0:
		return strings.TrimSpace(fmt.Sprintf("It would be answered %d %s", e.Status, http.StatusText(e.Status))) + "."
	case aborted:
		return "It would not be answered: a function of the program panics."
	case !slices.ContainsFunc(e.Limiters, func(l Limiter) bool { return l.Met }):
		return "It would reach the handler. As far as is known, no policy applies."
	default:
		return "It would reach the handler."
	}
}

// A text is lines for a terminal.
type text struct{ strings.Builder }

// line adds a line, indented by that many levels. A line break at its beginning stands for an empty line before.
func (t *text) line(level int, format string, args ...any) {
	format, empty := strings.CutPrefix(format, "\n")
	if empty {
		t.WriteByte('\n')
	}
	line := fmt.Sprintf(strings.Repeat("  ", level)+format, args...)
	t.WriteString(strings.TrimRight(printable(line), " ") + "\n")
}

// item adds a line with a value, unless that is empty.
func (t *text) item(level int, name, value string) {
	if value != "" {
		t.line(level, "%s", name+value)
	}
}

// printable escapes what a terminal might act on, and joins lines. It leaves a backslash alone, because most texts have been
// escaped already where they quote the request.
func printable(text string) string {
	return logtext.Printable(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\n", "; "))
}

func (t *text) limiter(number int, l *Limiter) {
	head, verdict := l.Mounted, "goes on"
	if l.Pattern != "" {
		head += " at " + l.Pattern
	}
	switch {
	case !l.Met:
		verdict = "is not met"
	case l.Skipped:
		verdict = "skipped"
	case !l.Allowed:
		verdict = "refused"
	}
	t.line(0, "\n%d. %s: %s", number, head, verdict)
	if !l.Met && len(l.Routes) > 0 {
		t.line(1, "serves %s", strings.Join(l.Routes, ", "))
	}
	t.item(1, "", l.Err)
	for i := range l.Policies {
		t.policy(&l.Policies[i])
	}
}

func (t *text) policy(p *Policy) {
	head := "policy " + p.Name
	if p.Shadow {
		head += " (Shadow)"
	}
	t.line(1, "%s: %s", head, strings.ReplaceAll(p.Outcome, "_", " "))
	t.item(2, "", p.Why)
	t.item(2, "key     ", p.Key)
	if p.Limit != "" {
		t.line(2, "limit   %s (%s)", p.Limit, cmp.Or(p.LimitWhy, "unknown"))
	}
	if p.Before != nil {
		t.line(2, "cost    %d", p.Cost)
		t.line(2, "before  %s", p.Tokens(p.Before))
	}
	if p.After != nil {
		t.line(2, "after   %s", p.Tokens(p.After))
	}
	if p.Found != nil {
		t.line(2, "how the key was found:")
		t.step(3, p.Found)
	}
}

func (t *text) step(level int, s *Step) {
	head := s.By
	switch {
	case s.Err != "":
		head += ": " + strings.TrimPrefix(s.Err, "ratelimit: ")
	case s.Key != "":
		head += " = " + s.Key
	}
	t.line(level, "%s", head)
	for _, note := range s.Notes {
		t.line(level+1, "- %s", note)
	}
	for _, tried := range s.Tried {
		t.step(level+1, tried)
	}
}

// Tokens returns the state of the policy's bucket in words.
func (p *Policy) Tokens(s *store.State) string {
	words := fmt.Sprintf("%d tokens left", s.Remaining)
	slots, isConcurrency := strings.CutSuffix(p.Limit, " at once")
	switch {
	case s.Blocked:
		words = "blocked for " + numbers.Span(s.RetryAfter)
	case s.Remaining == 1:
		words = "1 token left"
	}
	switch {
	case isConcurrency && s.Blocked:
		return words
	case isConcurrency:
		return fmt.Sprintf("%d of %s slots free", s.Remaining, slots)
	case strings.Contains(p.Limit, " per "): // a quota
		return words + ", renewed in " + numbers.Span(s.ResetAfter)
	case s.ResetAfter > 0:
		return words + ", full in " + numbers.Span(s.ResetAfter)
	}
	return words + ", full"
}
