package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
)

// unknownOf says what cannot be known about a policy.
func (s *simulation) unknownOf(t *tally) (say sentences) {
	p := &t.policy
	say.when(t.NoKey > 0 && !p.Shadow, "%s no key and would be answered 403. If the key is in a header that this log lacks, log the header and name it with -extra or -map header.NAME=FIELD.", have(t.NoKey))
	say.when(t.BadKey > 0, "%s a malformed key and would be answered 400, for example because the log has host names instead of addresses.", have(t.BadKey))
	say.when(p.Optional && t.Requests == 0 && s.report.Requests > 0, "No request has its key. It is optional, so all passed. If the key is in a header that this log lacks, log the header and name it with -extra or -map header.NAME=FIELD.")
	say.when(p.Settle != nil, "A login counts as failed if its logged status is not from 200 to 399. A handler that says otherwise with SetCost is not in a log.")
	say.when(p.MaxWait > 0 && p.Limit.Period() != 0, "Who waits for the next period asks again when it begins. Here they do so in the order in which they came, in production in none.")
	say.when(p.MaxWait > 0, "At most 1,024 requests wait at once, which is the default of Config.MaxWaiting, and no client left while it waited. In the curve nobody waits.")
	say.when(p.LockFor > 0, "In the curve and for the bursts that spare clients, no bucket is locked.")
	say.when(p.FailClosed, "The store never failed. In an outage this policy answers 503.")
	l, err := compile(p.Limit)
	if err != nil || p.Limit == ratelimit.Unlimited || s.report.Requests <= 1 {
		return say
	}
	resolution, length := time.Duration(s.fraction)*time.Microsecond, s.report.To.Sub(s.report.From) // at most the longest Duration, of 292 years
	say.when(resolution >= time.Millisecond && l.Unit <= l.Refill*resolution.Microseconds(), "Times have a resolution of %v, in which a bucket gains a token or more. Requests of that time are taken as if they came at once, so there may be fewer denials in production. Log milliseconds to see.", resolution)
	if l.IsQuota() {
		begin, _ := l.Period.Bounds(s.from)
		say.when(begin < s.from, "Each client had all of its quota at its first line, although the %s had begun before the log. Clients that had used some of it would be denied more.", l.Period.Unit)
		return say
	}
	fill := time.Duration(l.Fill()) * time.Microsecond
	say.when(fill >= length/10, "Each bucket was full at its first line. It takes %v to fill, and the log has %v. Clients that had used their tokens before would be denied more.", rounded(fill), rounded(length))
	return say
}

// sentences are those that apply.
type sentences []string

func (s *sentences) when(applies bool, format string, args ...any) {
	if applies {
		*s = append(*s, fmt.Sprintf(format, args...))
	}
}

func have(n int64) string {
	if n == 1 {
		return "1 request has"
	}
	return fmt.Sprint(n, " requests have")
}

func rounded(d time.Duration) time.Duration {
	if d > time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Millisecond)
}

// unknown says what cannot be known about the log and all policies.
func (s *simulation) unknown() (say sentences) {
	r := &s.report
	for _, m := range s.setup.leftOut {
		say.when(HasSlots(m.Policy), "%s is left out: its limit is for requests that run at once, and a log does not say how long a request ran.", m.Policy.Name)
		say.when(!HasSlots(m.Policy), "%s is left out: it uses %s, which only the program has. Run it in the program as a Shadow, to see there what it would deny.", m.Policy.Name, strings.Join(m.Unknown, ", "))
	}
	denied := slices.ContainsFunc(s.tallies, func(t *tally) bool { return t.denials.count > 0 && !t.policy.Shadow })
	say.when(denied, "Clients that are denied behave differently afterwards: some go away, some try again. The log has what they did when they were not denied.")
	say.when(s.limited > 0, "%s the status 429 in the log: a limit was in force already. They count like the others. Requests of clients that gave up because of it are not in the log.", have(s.limited))
	say.when(r.Requests > 0, "The log has the requests of one server. Requests to others, and those that a cache in front of it answered, are not in it.")
	say.when(r.Requests > 0 && r.Format != accesslog.JSON, "The time of a line counts as the time of its request. nginx logs the end of a request, Apache its beginning, and slow requests stand later than they came.")
	say.when(len(s.tallies) > 1 && r.Requests > 0, "A curve, and a burst that spares clients, is of one policy alone, as if the others allowed everything. A request without a key of another policy that is not optional, or with a malformed one, is in none of those behind it.")
	return say
}
