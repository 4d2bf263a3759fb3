//go:build long

package outages_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// The APIs that are in trouble together: one with local limits, one that lets requests through, and one that
// answers 503.
var apis = []string{"local", "open", "closed"}

const (
	well = 500 * time.Millisecond  // before the trouble
	ill  = 1500 * time.Millisecond // unless the fault says otherwise

	// late is how much longer than its bound something may take, besides what the machine is seen to stall.
	late = 100 * time.Millisecond

	// busy is from which stall on the machine may lack processor time. See store.ErrOverloaded.
	busy = 5 * time.Millisecond

	// stalling is for how long the machine may, or nothing is learned.
	stalling = 250 * time.Millisecond

	// within is how long it may take until Redis is asked again.
	within = time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOutages(t *testing.T) {
	var reports []report
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			reports = append(reports, f.run(t, 2))
		})
	}
	writeDocument(t, "faults", faultsSection(reports))
}

// A report is what the requests saw of a fault.
type report struct {
	fault    string
	reason   error
	before   span // while Redis was well
	until    span // in trouble, before the primary was given up
	after    span // since
	givenUp  time.Duration
	back     time.Duration // after the end of the trouble
	admitted int
	ideal    float64
	lost     bool
	local    answers
	open     answers // of the API without a stand-in
	closed   answers // of the API that fails closed
}

// A span is how long requests took in a time.
type span struct {
	requests          int
	p50, p99, slowest time.Duration
}

func spanOf(requests []request) span {
	return span{len(requests), quantile(requests, 0.5), quantile(requests, 0.99), quantile(requests, 1)}
}

// answers is what the requests of an API were told in trouble.
type answers struct {
	statuses string
	headers  string
	p50      time.Duration
}

func answersOf(requests []request) answers {
	byStatus := make(map[int]int)
	for _, r := range requests {
		byStatus[r.status]++
	}
	var statuses []string
	for status := range byStatus {
		statuses = append(statuses, fmt.Sprint(status))
	}
	slices.Sort(statuses)
	headers := "none"
	if n := count(requests, func(r request) bool { return r.headers }); n == len(requests) {
		headers = "quota"
	} else if 100*n > len(requests) {
		headers = fmt.Sprintf("quota on %d %%", 100*n/len(requests))
	}
	return answers{strings.Join(statuses, ", "), headers, quantile(requests, 0.5)}
}

// run has requests meet a fault, and checks what they saw. Where the machine stalled, which says nothing of a limiter,
// it does so again.
func (f fault) run(t *testing.T, again int) report {
	client, begin, end := f.prepare(t)
	primary := openStore(t, client())
	backed, changed := withFallback(t, openStore(t, client()), fallback.Config{})
	local, open, closed := newAPI(t, backed, apis[0], false), newAPI(t, primary, apis[1], false), newAPI(t, backed, apis[2], true)

	stop, running := make(chan struct{}), new(sync.WaitGroup)
	started := time.Now()
	for _, a := range []*api{local, open, closed} {
		a.serve(stop, running)
	}
	var stall time.Duration
	running.Go(func() { stall = stalled(stop) })
	time.Sleep(well)
	begun := time.Now()
	begin()
	time.Sleep(time.Until(begun.Add(cmp.Or(f.lasts, ill))))
	end()
	ended := time.Now()
	time.Sleep(within + late + well)
	close(stop)
	running.Wait()
	stopped := time.Now()
	if err := backed.Close(); err != nil { // so that nothing changes any more
		t.Error(err)
	}
	if stall > stalling && again > 0 {
		t.Logf("the machine stalled for %v: again", stall)
		return f.run(t, again-1)
	}

	r := report{
		fault:    f.name,
		before:   spanOf(local.between(started.Add(well/2), begun)),
		admitted: count(local.seen, admitted),
		ideal:    keys * (burst + rate*stopped.Sub(started).Seconds()),
		lost:     f.lost,
		local:    answersOf(local.between(begun, ended)),
		open:     answersOf(open.between(begun, ended)),
	}
	given, found := changed.next(true, begun)
	if !found {
		given.at = ended
	}
	r.reason, r.givenUp = given.reason, given.at.Sub(begun)
	r.until, r.after = spanOf(local.between(begun, given.at)), spanOf(local.between(given.at, ended))
	r.closed = answersOf(closed.between(given.at, ended))
	if back, found := changed.next(false, ended); found {
		r.back = back.at.Sub(ended)
	}
	t.Logf("%+v", r)

	longest := timeout + late + stall
	if stall >= busy && again > 0 && slices.ContainsFunc(slices.Concat(local.seen, open.seen, closed.seen), func(r request) bool {
		return r.took > longest || errors.Is(r.err, store.ErrOverloaded)
	}) {
		t.Logf("the machine was busy, with a stall of %v, and a request was told so or had its time twice: again", stall)
		return f.run(t, again-1)
	}
	check(t, "local limits", local, longest, http.StatusOK)
	check(t, "let through", open, longest, http.StatusOK)
	check(t, "fail closed", closed, longest, http.StatusServiceUnavailable)
	for name, degraded := range map[string]bool{"let through": slices.ContainsFunc(open.seen, isDegraded), "fail closed": slices.ContainsFunc(closed.seen, isDegraded)} {
		if degraded {
			t.Errorf("%s: a stand-in answered", name)
		}
	}
	if !slices.ContainsFunc(local.seen, isDegraded) || !slices.ContainsFunc(closed.seen, func(r request) bool { return r.err != nil }) {
		t.Error("the trouble reached nobody with local limits, or nobody that fails closed")
	}
	if !slices.ContainsFunc(open.seen, func(r request) bool {
		return r.err != nil && strings.Contains(r.err.Error(), f.cause) || f.slow > 0 && r.took >= f.slow
	}) {
		t.Errorf("nobody saw %q: not the trouble that it should be", f.cause)
	}
	if !raceEnabled && r.after.requests >= 1000 && r.after.p99 >= time.Millisecond {
		t.Errorf("a p99 of %v with Redis given up", r.after.p99)
	}
	// What is answered locally before the primary is given up comes on top, and a burst where buckets are lost.
	most := r.ideal + keys
	for _, r := range local.seen {
		if r.degraded && admitted(r) && !changed.away(r.begin) {
			most++
		}
	}
	if f.lost {
		most += keys * burst
	}
	// So does what the primary failed to be charged, of which the log has the first in a second: each is of a
	// bucket at most.
	most += float64(changed.uncharged.Load() * keys * burst)
	if float64(r.admitted) > most || float64(r.admitted) < 0.7*r.ideal {
		t.Errorf("%d admitted in %v with a stall of %v, want about %.0f and at most %.0f", r.admitted, stopped.Sub(started), stall, r.ideal, most)
	}
	if n := count(local.between(ended, ended.Add(within)), func(r request) bool { return !r.degraded && r.err == nil }); n == 0 {
		t.Errorf("no request is decided by Redis within %v of the end: %+v", within, changed.all)
	}
	return r
}

// check checks what must hold in any trouble. Who is not decided about gets the status undecided.
func check(t *testing.T, name string, a *api, longest time.Duration, undecided int) {
	t.Helper()
	for _, r := range a.seen {
		statuses := []int{http.StatusOK, http.StatusTooManyRequests}
		if r.err != nil {
			statuses = []int{undecided}
		}
		if !slices.Contains(statuses, r.status) {
			t.Errorf("%s: status %d (%v)", name, r.status, r.err)
		}
		if r.took > longest {
			t.Errorf("%s: took %v (%v, %v after the first)", name, r.took, r.err, r.begin.Sub(a.seen[0].begin))
		}
		if r.err != nil && r.headers {
			t.Errorf("%s: invented numbers", name)
		}
	}
}
