package code_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
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
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: clock.Now}))
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
	buckets := ratelimit.Must(memstore.New(memstore.Config{Clock: clock.Now}))
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
