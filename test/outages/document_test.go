//go:build long

package outages_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// writeDocument writes a section of docs/outages.md, if RATELIMIT_OUTAGES names that file. The order of the
// sections is that of their names' first use in it.
func writeDocument(t *testing.T, name, section string) {
	path := os.Getenv("RATELIMIT_OUTAGES")
	if path == "" || t.Failed() {
		return
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(old), begin)
	_, tail, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s has no place for %s", path, name)
	}
	if err := os.WriteFile(path, []byte(head+begin+section+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// faultsSection returns what docs/outages.md says of faults.
func faultsSection(reports []report) string {
	var b strings.Builder
	fmt.Fprintf(&b, `The servers are real redis-servers. Each one works for %d ms, is in trouble for %.1f s (or for the time in its name), and then works again.
The servers and the requests share %d processors. Three APIs use each server. An API has %d callers, which send one request after another.
The limit is %d per second with a burst of %d, for each of %d keys. Config.Timeout is %v.

## With local limits

The Store is a fallback with its defaults. It gives Redis up when calls fail or take 50 ms or longer, as said above, until a probe succeeds.
No request was answered 5xx. None took longer than the Timeout, apart from delays by the scheduler. Times are what the whole middleware
added to a request: p50 / p99.

| Trouble | Reason | Added before | Added until Redis was given up | Given up after | Added after that (slowest) | Back after the end | Admitted of burst + rate × time |
|---|---|--:|--:|--:|--:|--:|--:|
`, well.Milliseconds(), ill.Seconds(), runtime.GOMAXPROCS(0), callers, rate, burst, keys, timeout)
	for _, r := range reports {
		given, after := "never", "–"
		if r.reason != nil {
			given, after = ms(r.givenUp), fmt.Sprintf("%s (%s)", r.after, ms(r.after.slowest))
		}
		lost := ""
		if r.lost {
			lost = " (data lost)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %.2f%s |\n",
			r.fault, short(r.reason), r.before, r.until, given, after, ms(r.back), float64(r.admitted)/r.ideal, lost)
	}
	b.WriteString(`
More than 1.00 has two causes: Redis has lost its buckets, or calls failed before Redis was given up. Such calls are not charged again,
because Redis may have carried them out.

## By policy

| Trouble | Local limits: the Store is a fallback | Requests are allowed: the default, without a fallback | FailClosed |
|---|---|---|---|
`)
	for _, r := range reports {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.fault, r.local, r.open, r.closed)
	}
	b.WriteString(`
Each cell has the statuses, the rate limit headers, and the added p50 during the trouble. A 503 has Retry-After and a problem+json body of
type temporary-reduced-capacity, and no rate limit headers. If only the bucket of one key is broken, only requests for this key fail.
`)
	return b.String()
}

func (s span) String() string {
	if s.requests == 0 {
		return "–"
	}
	return fmt.Sprintf("%s / %s", ms(s.p50), ms(s.p99))
}

func (a answers) String() string {
	if a.statuses == "" {
		return "–"
	}
	return fmt.Sprintf("%s; %s; %s", a.statuses, a.headers, ms(a.p50))
}

func ms(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1000)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	default:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
}

// short returns the kind of an error, without addresses.
func short(err error) string {
	var answer redis.Error
	var dns *net.DNSError
	switch {
	case err == nil:
		return "–"
	case errors.Is(err, context.DeadlineExceeded):
		return "no reply in time"
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &answer):
		word, _, _ := strings.Cut(answer.Error(), " ")
		return word
	case strings.Contains(err.Error(), "connection refused"):
		return "connection refused"
	case strings.Contains(err.Error(), "EOF"), strings.Contains(err.Error(), "reset by peer"), strings.Contains(err.Error(), "broken pipe"):
		return "connection closed"
	default:
		return "error"
	}
}
