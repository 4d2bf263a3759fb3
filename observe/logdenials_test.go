package observe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
)

// withoutTime leaves out what differs from run to run.
var withoutTime = &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}}

// A denialLog is an observer and what it has logged.
type denialLog struct {
	bytes.Buffer
	observe func(context.Context, *ratelimit.Event)
}

func newDenialLog(cfg observe.LogConfig) *denialLog {
	l := new(denialLog)
	cfg.Logger = slog.New(slog.NewTextHandler(&l.Buffer, withoutTime))
	l.observe = observe.LogDenials(cfg)
	return l
}

// want compares the lines since it was last called.
func (l *denialLog) want(t *testing.T, lines ...string) {
	t.Helper()
	want := strings.Join(lines, "\n")
	if got := strings.TrimSuffix(l.String(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	l.Reset()
}

// denial is an event of a policy that denies.
func denial(policy, key string) *ratelimit.Event {
	return &ratelimit.Event{Results: []ratelimit.Result{{Policy: policy, Key: key, Limit: ratelimit.PerMinute(1), Cost: 1}}}
}

// by is an event of an allowed request, about which a stand-in decided or not.
func by(standIn bool) *ratelimit.Event {
	return &ratelimit.Event{Allowed: true, Results: []ratelimit.Result{{Policy: "api", Key: "k", State: store.State{Allowed: true, Degraded: standIn}}}}
}

func TestADeniedKeyIsLoggedOnceAMinuteWithHowManyWereNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		limiter := newLimiter(t, ratelimit.Config{Observe: l.observe})
		defer limiter.Close()
		p := perIP("api", ratelimit.PerHour(1).WithBurst(2))
		p.Cost = func(*http.Request) int64 { return 2 }
		h := onRoute(limiter.Limit(p)(okHandler))
		wantStatuses(t, h, []int{200})
		l.want(t)
		wantStatuses(t, h, []int{429, 429, 429})
		l.want(t, `level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route=/items/{id} limit="1/1h burst 2" cost=2 shadow=false degraded=false denials_not_logged=0`)
		time.Sleep(time.Minute - time.Nanosecond)
		wantStatuses(t, h, []int{429})
		l.want(t)
		time.Sleep(time.Nanosecond)
		wantStatuses(t, h, []int{429})
		l.want(t, `level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route=/items/{id} limit="1/1h burst 2" cost=2 shadow=false degraded=false denials_not_logged=3`)
		time.Sleep(time.Minute)
		wantStatuses(t, h, []int{429})
		l.want(t, `level=INFO msg="ratelimit: denied" policy=api key=ip:192.0.2.1 route=/items/{id} limit="1/1h burst 2" cost=2 shadow=false degraded=false denials_not_logged=0`)
	})
}

// An event is of a stand-in if any of its results is, whichever comes last.
func TestAStandInIsLoggedWhicheverPolicyItDecides(t *testing.T) {
	for _, order := range [][]bool{{true, false}, {false, true}} {
		synctest.Test(t, func(t *testing.T) {
			l := newDenialLog(observe.LogConfig{})
			e := &ratelimit.Event{Allowed: true, Results: append(by(order[0]).Results, by(order[1]).Results...)}
			l.observe(t.Context(), e)
			l.want(t, `level=WARN msg="ratelimit: a stand-in for the store decides" decisions_not_logged=0`)
		})
	}
}

func TestEachPolicyAndKeyHasLinesOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		shadow := denial("a", "k")
		shadow.Allowed, shadow.Results[0].Shadow = true, true
		both := denial("a", "k")
		both.Results = append(both.Results, denial("b", "k").Results...)
		both.Results[1].Degraded = true
		for range 2 {
			for _, e := range []*ratelimit.Event{denial("a", "k"), denial("a", "other"), shadow, both} {
				l.observe(t.Context(), e)
			}
		}
		const line = `level=INFO msg="ratelimit: denied" policy=%s key=%s route="" limit=1/1m cost=1 shadow=false degraded=false denials_not_logged=0`
		l.want(t,
			fmt.Sprintf(line, "a", "k"),
			fmt.Sprintf(line, "a", "other"),
			`level=INFO msg="ratelimit: would have denied" policy=a key=k route="" limit=1/1m cost=1 shadow=true degraded=false denials_not_logged=0`,
			strings.Replace(fmt.Sprintf(line, "b", "k"), "degraded=false", "degraded=true", 1),
			`level=WARN msg="ratelimit: a stand-in for the store decides" decisions_not_logged=0`,
		)
	})
}

// The digits are those of openssl, as LogConfig.KeySecret says.
func TestUnderASecretKeysAreShownByTheirHMAC(t *testing.T) {
	secret := []byte("0123456789abcdef")
	l := newDenialLog(observe.LogConfig{KeySecret: secret})
	clear(secret)
	l.observe(t.Context(), denial("api", "ip:192.0.2.1"))
	l.want(t, `level=INFO msg="ratelimit: denied" policy=api key=hmac:e021aa5403669bb1 route="" limit=1/1m cost=1 shadow=false degraded=false denials_not_logged=0`)
}

func TestASecretThatIsTooShortIsRefusedAtOnce(t *testing.T) {
	for _, secret := range []string{"", "0123456789abcde"} { // the first is what an unset variable makes
		checkPanic(t, func() { observe.LogDenials(observe.LogConfig{KeySecret: []byte(secret)}) }, "LogConfig.KeySecret", "at least 16")
	}
}

func TestTextsOfClientsAreCut(t *testing.T) {
	l := newDenialLog(observe.LogConfig{})
	l.observe(t.Context(), denial("api", strings.Repeat("k", 1<<20)))
	l.observe(t.Context(), &ratelimit.Event{Err: fmt.Errorf("%w: %s", ratelimit.ErrNoKey, strings.Repeat("x", 1<<20))})
	if n := l.Len(); n < 2*256 || n > 1024 {
		t.Errorf("%d bytes:\n%.1000s", n, l.String())
	}
}

func TestKeysBeyondTheMostShareALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		flood := func(from, n int) {
			for i := range n {
				l.observe(t.Context(), denial("api", fmt.Sprint("ip:", from+i)))
			}
		}
		const other = `level=INFO msg="ratelimit: denied other keys" policy=%s key="" route="" limit=1/1m cost=1 shadow=false degraded=false denials_not_logged=%d`
		flood(0, 1024)
		if lines := strings.Count(l.String(), "ratelimit: denied\" "); lines != 1024 {
			t.Errorf("%d keys have lines, want 1024", lines)
		}
		l.Reset()
		flood(1024, 10_000)
		l.want(t, fmt.Sprintf(other, "api", 0))
		l.observe(t.Context(), denial("login", "ip:1"))
		l.want(t, fmt.Sprintf(other, "login", 0))
		flood(0, 1024) // these are known
		l.want(t)

		// After a minute others have their turn; those that are forgotten for them are counted still.
		time.Sleep(time.Minute)
		flood(1<<20, 1024)
		if lines := strings.Count(l.String(), "ratelimit: denied\" "); lines != 1024 {
			t.Errorf("%d other keys have lines, want 1024", lines)
		}
		l.Reset()
		flood(1<<21, 2)
		l.want(t, fmt.Sprintf(other, "api", 9_999+1024))
	})
}

func TestStandInsAreLoggedWhenTheyBeginAndEnd(t *testing.T) {
	const begun = `level=WARN msg="ratelimit: a stand-in for the store decides" decisions_not_logged=`
	const ended = `level=INFO msg="ratelimit: the store decides again" decisions_not_logged=`
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		see := func(standIns ...bool) {
			for _, standIn := range standIns {
				l.observe(t.Context(), by(standIn))
			}
		}
		see(false, false)
		l.want(t)
		see(true, true, false, true, false) // calls overtake each other, and limiters have stores of their own
		l.want(t, begun+"0")
		time.Sleep(time.Minute - time.Nanosecond)
		see(false)
		l.observe(t.Context(), &ratelimit.Event{Allowed: true, Err: errors.New("on fire")}) // nobody decided
		l.want(t)
		time.Sleep(time.Nanosecond)
		l.observe(t.Context(), &ratelimit.Event{Allowed: true, Err: errors.New("on fire")})
		l.want(t)
		see(false, false)
		l.want(t, ended+"2")

		// It has been a minute since the first line, but not since the second.
		see(true, true)
		l.want(t)
		time.Sleep(time.Minute)
		see(false, true, true)
		l.want(t, begun+"2")
		time.Sleep(time.Hour)
		see(true, false)
		l.want(t)
		time.Sleep(time.Minute)
		see(false, false)
		l.want(t, ended+"2")
	})
}

// A settlement is no decision, also if a stand-in made it, and whatever its results say. Neither is a slot that has expired.
func TestSettlementsAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		settled := func(e *ratelimit.Event, err error) *ratelimit.Event {
			e.Op, e.Err = "settle", err
			return e
		}
		l.observe(t.Context(), settled(by(true), nil))
		l.observe(t.Context(), settled(denial("api", "k"), nil))
		l.observe(t.Context(), settled(by(false), ratelimit.ErrNoKey))
		l.observe(t.Context(), &ratelimit.Event{Op: "expired", Allowed: true, Results: by(true).Results})
		l.want(t)
		l.observe(t.Context(), by(true))
		l.want(t, `level=WARN msg="ratelimit: a stand-in for the store decides" decisions_not_logged=0`)
		time.Sleep(time.Hour)
		l.observe(t.Context(), settled(by(false), nil)) // of a request that the stand-in decided about
		l.want(t)
		l.observe(t.Context(), by(false))
		l.want(t, `level=INFO msg="ratelimit: the store decides again" decisions_not_logged=0`)
	})
}

func TestFailuresAreLeftToTheLogger(t *testing.T) {
	l := newDenialLog(observe.LogConfig{})
	var failures bytes.Buffer
	limiter := newLimiter(t, ratelimit.Config{
		Store:   failing(func() error { return errors.New("on fire") }),
		Logger:  slog.New(slog.NewTextHandler(&failures, nil)),
		Observe: l.observe,
	})
	p := perIP("api", ratelimit.PerHour(1))
	wantStatuses(t, limiter.Limit(p)(okHandler), []int{200})
	p.FailClosed = true
	wantStatuses(t, limiter.Limit(p)(okHandler), []int{503})
	l.want(t)
	if !strings.Contains(failures.String(), "on fire") {
		t.Errorf("the Logger got %q", failures.String())
	}
}

func TestRefusalsForWantOfAKeyAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		limiter := newLimiter(t, ratelimit.Config{Observe: l.observe})
		defer limiter.Close()
		p := ratelimit.Policy{Name: "api", Key: ratelimit.Route(), Limit: ratelimit.PerHour(1)}
		h := limiter.Limit(p)(okHandler)
		wantStatuses(t, h, []int{403, 403, 403})
		const line = `level=INFO msg="ratelimit: no key" error="policy api: ratelimit: no key: the request has not matched a route yet: mount the limiter on the route's handler, not around the router; under a router other than ServeMux and chi, set http.Request.Pattern first, or use another key" route="" denials_not_logged=`
		l.want(t, line+"0")
		time.Sleep(time.Minute)
		wantStatuses(t, h, []int{403})
		l.want(t, line+"2")
	})
}

func TestConcurrentDenialsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDenialLog(observe.LogConfig{})
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 1000 {
					l.observe(t.Context(), denial("api", "k"))
					l.observe(t.Context(), by(true))
				}
			})
		}
		callers.Wait()
		l.Reset()
		time.Sleep(time.Minute)
		l.observe(t.Context(), denial("api", "k"))
		l.observe(t.Context(), by(false))
		l.want(t,
			`level=INFO msg="ratelimit: denied" policy=api key=k route="" limit=1/1m cost=1 shadow=false degraded=false denials_not_logged=7999`,
			`level=INFO msg="ratelimit: the store decides again" decisions_not_logged=7999`)
	})
}

func TestAllowedRequestsCostTheLogNoAllocation(t *testing.T) {
	l := newDenialLog(observe.LogConfig{})
	allowed, ctx := by(false), context.Background()
	l.observe(ctx, denial("api", "k"))
	repeated := denial("api", "k")
	if n := testing.AllocsPerRun(1000, func() { l.observe(ctx, allowed) }); n != 0 {
		t.Errorf("an allowed request: %v allocations", n)
	}
	if n := testing.AllocsPerRun(1000, func() { l.observe(ctx, repeated) }); n != 0 {
		t.Errorf("a denial that is not logged: %v allocations", n)
	}
}

func TestTheDefaultLoggerIsTheOneOfTheTimeOfALine(t *testing.T) {
	var out bytes.Buffer
	observe := observe.LogDenials(observe.LogConfig{})
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, withoutTime)))
	observe(t.Context(), denial("api", "k"))
	if !strings.Contains(out.String(), "policy=api key=k ") {
		t.Errorf("got %q", out.String())
	}
}

// Before a program sets another, slog.Default writes by package log.
func TestTheHandlerThatProgramsBeginWithEscapesKeys(t *testing.T) {
	var out bytes.Buffer
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	observe := observe.LogDenials(observe.LogConfig{})
	observe(t.Context(), denial("api", "a\n2026/11/21 INFO forged b=\"c\u202e"))
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `key="a\\n2026/11/21 INFO forged b=\\\"c\\u202e" route`) {
		t.Errorf("got %q", got)
	}
}

// What handlers do with a line is in its context.
func TestALineHasTheContextOfItsRequest(t *testing.T) {
	type traceKey struct{}
	var got []any
	logger := slog.New(handler(func(ctx context.Context, _ slog.Record) { got = append(got, ctx.Value(traceKey{})) }))
	limiter := newLimiter(t, ratelimit.Config{Observe: observe.LogDenials(observe.LogConfig{Logger: logger})})
	h := limiter.Limit(perIP("api", ratelimit.PerHour(1)))(okHandler)
	wantStatuses(t, h, []int{200, 429}, func(r *http.Request) {
		*r = *r.WithContext(context.WithValue(r.Context(), traceKey{}, "trace"))
	})
	if len(got) != 1 || got[0] != "trace" {
		t.Errorf("got %v", got)
	}
}

type handler func(context.Context, slog.Record)

func (h handler) Handle(ctx context.Context, r slog.Record) error { h(ctx, r); return nil }
func (handler) Enabled(context.Context, slog.Level) bool          { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler              { return h }
func (h handler) WithGroup(string) slog.Handler                   { return h }
