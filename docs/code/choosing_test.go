package code_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// admitted returns how many requests of one client a limit allows in a time, if the client sends each as soon as it is
// allowed. The end does not belong to the time.
func admitted(t *testing.T, limit ratelimit.Limit, span time.Duration) (n int) {
	t.Helper()
	clock := ratetest.NewClock()
	buckets := memstore.New(memstore.Config{Clock: clock.Now})
	defer buckets.Close()
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Store: buckets})
	policy := ratelimit.Policy{Name: "p", Limit: limit}
	for end := clock.Now().Add(span); clock.Now().Before(end); {
		result, err := limiter.Take(t.Context(), policy, "client", 1)
		if err != nil {
			t.Fatal(err)
		}
		if result.Allowed {
			n++
		}
		clock.Advance(result.RetryAfter)
	}
	return n
}

func TestHowManyRequestsALimitAdmits(t *testing.T) {
	for _, c := range []struct {
		limit       ratelimit.Limit
		short, long time.Duration
		row         string // of the guide
	}{
		{ratelimit.PerMinute(60), time.Minute, time.Hour, "| `PerMinute(60)` | %s | %s |"},
		{ratelimit.PerMinute(60).WithBurst(10), time.Minute, time.Hour, "| `PerMinute(60).WithBurst(10)` | %s | %s |"},
		{ratelimit.Limit{Rate: 5, Per: 15 * time.Minute}, 15 * time.Minute, 24 * time.Hour, "| `Limit{Rate: 5, Per: 15 * time.Minute}` | %s | %s |"},
		{ratelimit.Every(15 * time.Minute).WithBurst(5), 15 * time.Minute, 24 * time.Hour, "| `Every(15 * time.Minute).WithBurst(5)` | %s | %s |"},
	} {
		t.Run(c.limit.String(), func(t *testing.T) {
			t.Parallel()
			inShort, inLong := admitted(t, c.limit, c.short), admitted(t, c.limit, c.long)
			wantInGuide(t, "docs/choosing-a-limit.md", fmt.Sprintf(c.row, thousands(inShort), thousands(inLong)))
		})
	}
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// wantInGuide checks that a guide has a line.
func wantInGuide(t *testing.T, guide, line string) {
	t.Helper()
	if !slices.Contains(readDocument(t, guide).lines, line) {
		t.Errorf("%s should have: %s", guide, line)
	}
}

// moved returns a limiter whose clock the test moves.
func moved(t *testing.T) (*ratelimit.Limiter, *ratetest.Clock) {
	t.Helper()
	clock := ratetest.NewClock()
	buckets := memstore.New(memstore.Config{Clock: clock.Now})
	t.Cleanup(func() { buckets.Close() })
	return ratetest.NewLimiter(t, ratelimit.Config{Store: buckets, Logger: slog.New(slog.DiscardHandler)}), clock
}

// The table of the guide: what a client of PerMinute(60).WithBurst(10) finds.
func TestTheBucketOfAClient(t *testing.T) {
	limiter, clock := moved(t)
	api := ratetest.PerIP("api", ratelimit.PerMinute(60).WithBurst(10))
	h := limiter.Limit(api)(ratetest.OK)
	start := clock.Now()
	tokens := func() int64 {
		result, err := limiter.Peek(t.Context(), api, "ip:192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return result.Remaining
	}
	for _, step := range []struct{ at, requests int }{{0, 15}, {3, 5}, {8, 2}, {15, 12}, {60, 15}} {
		clock.Advance(start.Add(time.Duration(step.at) * time.Second).Sub(clock.Now()))
		before, allowed, after := tokens(), 0, ""
		for range step.requests {
			w := ratetest.Get(h)
			if w.Code == 200 {
				allowed++
			} else {
				after = w.Header().Get("Retry-After") + " s "
			}
		}
		wantInGuide(t, "docs/choosing-a-limit.md", fmt.Sprintf("| %d s | %d | %d | %d | %d | %s|", step.at, before, step.requests, allowed, tokens(), after))
	}
}

func TestALoginLimit(t *testing.T) {
	login := ratelimit.Policy{
		Name:       "login",
		Key:        ratelimit.RemoteIP(),
		Limit:      ratelimit.Every(15 * time.Minute).WithBurst(5),
		Settle:     ratelimit.FailedLogins, // a login that has succeeded costs nothing
		FailClosed: true,                   // 503 while Redis is unavailable
	}

	limiter, clock := moved(t)
	h := limiter.Limit(login)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusOK)
	}))
	right := ratetest.With("Password", "right")
	ratetest.WantStatuses(t, h, []int{200, 200, 200, 200, 200, 200, 200}, right)
	ratetest.WantStatuses(t, h, []int{401, 401, 401, 401, 401, 429})
	ratetest.WantStatuses(t, h, []int{429}, right)
	clock.Advance(15*time.Minute - time.Microsecond)
	ratetest.WantStatuses(t, h, []int{429})
	clock.Advance(time.Microsecond)
	ratetest.WantStatuses(t, h, []int{401, 429})
	clock.Advance(75 * time.Minute)
	ratetest.WantStatuses(t, h, []int{401, 401, 401, 401, 401, 429})
}

// Logins that overlap hold their tokens, also those with the right password.
func TestLoginsAtTheSameTime(t *testing.T) {
	limiter, _ := moved(t)
	login := ratetest.PerIP("login", ratelimit.Every(15*time.Minute).WithBurst(5))
	login.Settle = ratelimit.FailedLogins
	var h http.Handler
	h = limiter.Limit(login)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, _ := strconv.Atoi(r.Header.Get("Others")); n > 0 { // n others begin before this one ends
			want := 200
			if n == 1 {
				want = 429
			}
			inner := ratetest.Get(h, ratetest.With("Others", strconv.Itoa(n-1)))
			if after := inner.Header().Get("Retry-After"); inner.Code != want || want == 429 && after != "900" {
				t.Errorf("with %d others before it: %d, Retry-After %q; want %d", 6-n, inner.Code, after, want)
			}
		}
		w.WriteHeader(http.StatusOK)
	}))
	ratetest.WantStatuses(t, h, []int{200, 200}, ratetest.With("Others", "5"))
}

func TestALimitForEachClientAndOneForAll(t *testing.T) {
	limiter, _ := moved(t)
	next := ratetest.OK

	perClient := ratelimit.Policy{Name: "client", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)}
	everyone := ratelimit.Policy{Name: "everyone", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(100), Hidden: true}
	handler := limiter.Limit(perClient, everyone)(next)

	ratetest.WantStatuses(t, handler, append(slices.Repeat([]int{200}, 60), 429, 429, 429), ratetest.From("192.0.2.1"))
	ratetest.WantStatuses(t, handler, append(slices.Repeat([]int{200}, 40), 429), ratetest.From("192.0.2.2"))
	w := ratetest.Get(handler, ratetest.From("192.0.2.3"))
	if w.Code != 429 || w.Header().Get("X-RateLimit-Limit") != "60" || w.Header().Get("X-RateLimit-Remaining") != "60" || strings.Contains(w.Body.String(), "everyone") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

type planKey struct{}

// customerOf and planOf return what the authentication has put into the context.
func customerOf(ctx context.Context) (string, bool) {
	customer, ok := ctx.Value(planKey{}).([2]string)
	return customer[0], ok
}

func planOf(ctx context.Context) string {
	customer, _ := ctx.Value(planKey{}).([2]string)
	return customer[1]
}

// asCustomer changes the customer of a request, and the plan.
func asCustomer(name, plan string) func(*http.Request) {
	return func(r *http.Request) {
		*r = *r.WithContext(context.WithValue(r.Context(), planKey{}, [2]string{name, plan}))
	}
}

func TestTiersByPlan(t *testing.T) {
	limiter, _ := moved(t)
	next := ratetest.OK

	plans := map[string]ratelimit.Limit{
		"pro":      ratelimit.PerMinute(600).WithBurst(100),
		"internal": ratelimit.Unlimited,
		"blocked":  ratelimit.PerDay(0),
	}
	api := ratelimit.Policy{
		Name:      "api",
		Key:       ratelimit.ContextKey(customerOf),
		Limit:     ratelimit.PerMinute(60).WithBurst(10), // for plans that are not in the map
		LimitFunc: func(r *http.Request) ratelimit.Limit { return plans[planOf(r.Context())] },
	}
	handler := limiter.Limit(api)(next)

	for plan, want := range map[string]string{"pro": "100", "free": "10", "internal": "", "blocked": "0"} {
		w := ratetest.Get(handler, asCustomer(plan, plan))
		if got := w.Header().Get("X-RateLimit-Limit"); got != want || (w.Code == 200) != (plan != "blocked") {
			t.Errorf("%s: %d, a burst of %q, want %q", plan, w.Code, got, want)
		}
	}
}

func TestCostsOfRequests(t *testing.T) {
	limiter, _ := moved(t)
	next := ratetest.OK

	search := ratelimit.Policy{
		Name:  "search",
		Key:   ratelimit.RemoteIP(),
		Limit: ratelimit.PerMinute(60).WithBurst(20), // a burst below the highest cost would deny it for ever
		Cost: func(r *http.Request) int64 {
			if r.URL.Query().Has("fulltext") {
				return 10
			}
			return 1
		},
	}
	handler := limiter.Limit(search)(next)

	fulltext := func(r *http.Request) { r.URL.RawQuery = "fulltext" }
	ratetest.WantStatuses(t, handler, []int{200}, fulltext)
	ratetest.WantStatuses(t, handler, []int{200})
	ratetest.WantStatuses(t, handler, []int{429}, fulltext)

	search.Name, search.Limit = "small", ratelimit.PerMinute(60).WithBurst(9)
	if w := ratetest.Get(limiter.Limit(search)(next), fulltext); w.Code != 429 || w.Header().Get("Retry-After") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestWaitingInsteadOfRefusing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer limiter.Close()
		next := ratetest.OK

		reports := ratelimit.Policy{
			Name:    "reports",
			Key:     ratelimit.RemoteIP(),
			Limit:   ratelimit.PerSecond(2),
			MaxWait: 3 * time.Second, // shorter than http.Server.WriteTimeout
		}
		handler := limiter.Limit(reports)(next)

		start := time.Now()
		answers := make(chan time.Duration, 9)
		for range 9 {
			go func() {
				if ratetest.Get(handler).Code == 200 {
					answers <- time.Since(start)
				} else {
					answers <- -1
				}
			}()
			synctest.Wait()
		}
		var after []time.Duration
		for range 9 {
			after = append(after, <-answers)
		}
		const ms = time.Millisecond
		want := []time.Duration{0, 0, -1, 500 * ms, 1000 * ms, 1500 * ms, 2000 * ms, 2500 * ms, 3000 * ms}
		if !slices.Equal(after, want) {
			t.Errorf("answered after %v, want %v; -1 is refused", after, want)
		}
	})
}

func TestAShadowIsMeasured(t *testing.T) {
	var text strings.Builder
	logger := slog.New(slog.NewTextHandler(&text, nil))

	limiter, err := ratelimit.New(ratelimit.Config{
		Policies: []ratelimit.Policy{
			{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60)},
			{Name: "api-next", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(30).WithBurst(2), Shadow: true},
		},
		Observe: observe.LogDenials(observe.LogConfig{Logger: logger}),
	})

	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	ratetest.WantStatuses(t, limiter.Handler(ratetest.OK), []int{200, 200, 200})
	if lines := text.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, `msg="ratelimit: would have denied" policy=api-next`) {
		t.Errorf("logged:\n%s", lines)
	}
}

// reload replaces the limit of the policy api by one from a file of the operator, such as "120/1m burst 20".
func reload(limiter *ratelimit.Limiter, api ratelimit.Policy, text string) error {
	limit, err := ratelimit.ParseLimit(text)
	if err != nil {
		return err
	}
	api.Limit = limit
	return limiter.Reload(api)
}

func TestChangingALimitWhileServing(t *testing.T) {
	clock := ratetest.NewClock()
	buckets := memstore.New(memstore.Config{Clock: clock.Now})
	defer buckets.Close()
	api := ratetest.PerIP("api", ratelimit.PerMinute(60).WithBurst(4))
	limiter := ratetest.NewLimiter(t, ratelimit.Config{Store: buckets, Policies: []ratelimit.Policy{api}})
	h := limiter.Handler(ratetest.OK)
	ratetest.WantStatuses(t, h, []int{200, 200, 200})
	if err := reload(limiter, api, "120/1m burst 20"); err != nil {
		t.Fatal(err)
	}
	ratetest.WantStatuses(t, h, []int{200, 429}) // one of four was left
	clock.Advance(time.Second)
	ratetest.WantStatuses(t, h, []int{200, 200, 429})
	if err := reload(limiter, api, "120 per minute"); err == nil {
		t.Error("a malformed limit was accepted")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if got := w.Header().Get("X-RateLimit-Limit"); got != "20" {
		t.Errorf("the burst is %q", got)
	}
}
