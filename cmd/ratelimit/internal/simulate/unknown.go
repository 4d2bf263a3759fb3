package simulate

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
)

// unknownOf says what cannot be known about a policy.
func (s *simulation) unknownOf(t *tally) (say []string) {
	p := &t.policy
	sayIf := func(applies bool, format string, args ...any) {
		if applies {
			say = append(say, fmt.Sprintf(format, args...))
		}
	}
	sayIf(t.noKey > 0 && !p.Shadow, "%s no key and would be answered 403. If the key is in a header that this log lacks, log the header and name it with -extra or -map header.NAME=FIELD.", have(t.noKey))
	sayIf(t.badKey > 0, "%s a malformed key and would be answered 400, for example because the log has host names instead of addresses.", have(t.badKey))
	sayIf(p.Optional && t.requests == 0 && s.report.Requests > 0, "No request has its key. It is optional, so all passed. If the key is in a header that this log lacks, log the header and name it with -extra or -map header.NAME=FIELD.")
	sayIf(isFailedLogins(p.Settle), "A login counts as failed if its logged status is not from 200 to 399. A handler that says otherwise with SetCost is not in a log.")
	sayIf(p.Settle != nil && !isFailedLogins(p.Settle), "Costs are settled with the logged status and size, at the time of the line. Costs that handlers set with SetCost are not in a log.")
	sayIf(p.Cost != nil, "Costs are those of requests with only the headers that the log has, and without their bodies.")
	sayIf(p.LimitFunc != nil && t.curve != nil, "The curve and the bursts that spare clients have one limit for all clients, not those of LimitFunc.")
	sayIf(p.LimitFunc != nil && t.curve == nil, "There is no curve: all limits come from LimitFunc.")
	sayIf(p.MaxWait > 0, "At most 1,024 requests wait at once, which is the default of Config.MaxWaiting, and no client left while it waited. In the curve nobody waits.")
	sayIf(p.LockFor > 0, "In the curve and for the bursts that spare clients, no bucket is locked.")
	sayIf(p.FailClosed, "The store never failed. In an outage this policy answers 503.")
	sayIf(s.report.Resolution >= time.Millisecond && s.refillsWithin(p.Limit), "Times have a resolution of %v, in which a bucket gains a token or more. Requests of that time are taken as if they came at once, so there may be fewer denials in production. Log milliseconds to see.", s.report.Resolution)
	sayIf(s.refillsLate(p.Limit), "Each bucket was full at its first line. It takes %v to fill, and the log has %v. Clients that had used their tokens before would be denied more.", rounded(fillOf(p.Limit)), rounded(s.length()))
	return say
}

func have(n int64) string {
	if n == 1 {
		return "1 request has"
	}
	return fmt.Sprint(n, " requests have")
}

func isFailedLogins(settle func(*http.Request, ratelimit.Response) int64) bool {
	return settle != nil && reflect.ValueOf(settle).Pointer() == reflect.ValueOf(ratelimit.FailedLogins).Pointer()
}

// length is at most the longest Duration, of 292 years.
func (s *simulation) length() time.Duration {
	return time.UnixMicro(s.to).Sub(time.UnixMicro(s.from))
}

func fillOf(l ratelimit.Limit) time.Duration {
	compiled, err := compile(l)
	if err != nil || l == ratelimit.Unlimited {
		return 0
	}
	return time.Duration(compiled.Fill()) * time.Microsecond
}

func rounded(d time.Duration) time.Duration {
	if d > time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Millisecond)
}

// refillsWithin reports whether a bucket gains a token within the resolution of the log.
func (s *simulation) refillsWithin(l ratelimit.Limit) bool {
	compiled, err := compile(l)
	return err == nil && l != ratelimit.Unlimited && compiled.Unit <= compiled.Refill*s.report.Resolution.Microseconds() && s.report.Requests > 1
}

// refillsLate reports whether the time to fill is a tenth of the log or more.
func (s *simulation) refillsLate(l ratelimit.Limit) bool {
	return s.report.Requests > 1 && fillOf(l) >= s.length()/10 && fillOf(l) > 0
}

// unknown says what cannot be known about the log and all policies.
func (s *simulation) unknown() (say []string) {
	sayIf := func(applies bool, format string, args ...any) {
		if applies {
			say = append(say, fmt.Sprintf(format, args...))
		}
	}
	r := &s.report
	for _, m := range s.setup.leftOut {
		say = append(say, fmt.Sprintf("%s is left out: it uses %s, which only the program has. Run it in the program as a Shadow, to see there what it would deny.", m.Policy.Name, strings.Join(m.Unknown, ", ")))
	}
	denied := false
	for _, t := range s.tallies {
		denied = denied || t.denied > 0 && !t.policy.Shadow
	}
	sayIf(denied, "Clients that are denied behave differently afterwards: some go away, some try again. The log has what they did when they were not denied.")
	sayIf(s.limited > 0, "%s the status 429 in the log: a limit was in force already. They count like the others. Requests of clients that gave up because of it are not in the log.", have(s.limited))
	sayIf(s.engine.ties > 0 && s.engine.both, "%d waits ended at the very time of a line, and their requests went on before it. In life either may be first, and take what is behind the wait.", s.engine.ties)
	sayIf(s.engine.hurried > 0, "Requests wait at once with lines of more than %d MiB in all, too much to keep. %d of them go on at once instead, and what is behind their wait is decided too early.", maxKept>>20, s.engine.hurried)
	sayIf(r.Requests > 0, "The log has the requests of one server. Requests to others, and those that a cache in front of it answered, are not in it.")
	sayIf(r.Requests > 0 && r.Format != accesslog.JSON, "The time of a line counts as the time of its request. nginx logs the end of a request, Apache its beginning, and slow requests stand later than they came.")
	sayIf(len(s.tallies) > 1 && r.Requests > 0, "A curve, and a burst that spares clients, is of one policy alone, as if the others allowed everything. A request without a key of another policy that is not optional, or with a malformed one, is in none of those behind it.")
	for i := 1; i < len(s.files); i++ {
		if a, b := &s.files[i-1], &s.files[i]; a.seen && b.seen && b.first < a.last {
			say = append(say, fmt.Sprintf("%s begins before %s ends. Lines are taken in the order of the files: give the oldest file first, and simulate servers that shared their requests one by one, or sort their lines.", r.Files[i], r.Files[i-1]))
			break
		}
	}
	if b := s.bad[accesslog.BrokenFile]; b != nil {
		for _, at := range b.Examples {
			say = append(say, fmt.Sprintf("%s cannot be read after line %d: %s. What comes there is missing.", at.File, at.Line, at.Text))
		}
	}
	return say
}
