package code_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
)

// slow is a handler whose requests run until it is closed.
type slow chan struct{}

func (s slow) ServeHTTP(http.ResponseWriter, *http.Request) { <-s }

// wantAtOnce sends n requests, and checks how many of them do not get an answer while others run. It returns the answers.
func wantAtOnce(t *testing.T, want int, h http.Handler, n int, change ...func(*http.Request)) (answers []*httptest.ResponseRecorder) {
	t.Helper()
	answered := make(chan *httptest.ResponseRecorder, n)
	for range n {
		go func() { answered <- ratetest.Get(h, change...) }()
	}
	synctest.Wait()
	for range len(answered) {
		answers = append(answers, <-answered)
	}
	if got := n - len(answers); got != want {
		t.Errorf("%d of %d requests run or wait, want %d", got, n, want)
	}
	return answers
}

func TestThreeExportsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.NewLimiter(t, ratelimit.Config{})
		defer limiter.Close()
		customer, export, mux := ratelimit.RemoteIP(), make(slow), http.NewServeMux()

		exports := ratelimit.Policy{
			Name:  "exports",
			Key:   customer, // such as a claim of a token
			Limit: ratelimit.Concurrency(3),
		}
		mux.Handle("POST /exports", limiter.Limit(exports)(export))

		post := func(r *http.Request) { r.Method, r.URL.Path = "POST", "/exports" }
		guide := strings.Join(readDocument(t, "docs/concurrency.md").lines, "\n")
		for _, w := range wantAtOnce(t, 3, mux, 4, post) {
			for _, line := range []string{
				"HTTP/1.1 429 Too Many Requests", "Retry-After: " + w.Header().Get("Retry-After"), "X-Ratelimit-Limit: " + w.Header().Get("X-Ratelimit-Limit"),
				"X-Ratelimit-Remaining: " + w.Header().Get("X-Ratelimit-Remaining"), strings.TrimSpace(w.Body.String()),
			} {
				if w.Code != 429 || w.Header().Get("X-Ratelimit-Reset") != "" || !strings.Contains(guide, "\n"+line+"\n") {
					t.Errorf("docs/concurrency.md lacks the line %s", line)
				}
			}
		}

		perHour := ratelimit.Policy{Name: "exports-rate", Key: customer, Limit: ratelimit.PerHour(20).WithBurst(5)}
		handler := limiter.Limit(exports, perHour)(export)

		wantAtOnce(t, 0, handler, 9)
		close(export)
		synctest.Wait()
		ratetest.WantStatuses(t, handler, []int{200, 200, 200, 200, 200, 429}) // those that were denied took no token
		if r, err := limiter.Peek(t.Context(), exports, "ip:192.0.2.1"); err != nil || r.Remaining != 3 {
			t.Errorf("the request without a token holds a slot: %+v, %v", r, err)
		}
	})
}

func TestSearchesOfOrganisations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.NewLimiter(t, ratelimit.Config{})
		defer limiter.Close()
		members := ratelimit.Must(jwtkey.New(ratetest.HS256Config()))
		searchesOf := map[string]ratelimit.Limit{"free": ratelimit.Concurrency(2), "enterprise": ratelimit.Unlimited}

		searches := ratelimit.Policy{
			Name:    "searches",
			Key:     members.ClaimAs("org", "org_id"),
			Limit:   ratelimit.Concurrency(20),
			MaxWait: 2 * time.Second,
			LimitFunc: func(r *http.Request) ratelimit.Limit {
				return searchesOf[planOf(r.Context())] // the zero Limit of an unknown plan stands for Policy.Limit
			},
		}

		for plan, most := range map[string]int{"free": 2, "": 20, "enterprise": 25} {
			search := make(slow)
			h := limiter.Limit(searches)(search)
			token := ratetest.With("Authorization", "Bearer "+ratetest.HS256(ratetest.Valid(`"org_id": "of `+plan+`"`)))
			answered := make(chan int, 25)
			for range 25 {
				go func() { answered <- ratetest.Get(h, token, in(plan)).Code }()
			}
			time.Sleep(searches.MaxWait + time.Second)
			if denied := len(answered); denied != 25-most {
				t.Errorf("plan %q: %d of 25 searches are denied after a wait", plan, denied)
			}
			close(search)
			synctest.Wait()
		}
	})
}

func TestSocketsOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.NewLimiter(t, ratelimit.Config{})
		defer limiter.Close()
		member, chat, mux := ratelimit.RemoteIP(), make(slow), http.NewServeMux()

		sockets := ratelimit.Policy{Name: "sockets", Key: member, Limit: ratelimit.Concurrency(5)}
		mux.Handle("GET /chat", limiter.Limit(sockets)(chat))

		wantAtOnce(t, 5, mux, 7, func(r *http.Request) { r.URL.Path = "/chat" })
		close(chat)
	})
}

// report writes the report of a customer.
func report(ctx context.Context, limiter *ratelimit.Limiter, reports ratelimit.Policy, customer string, writeReport func(context.Context, string) error) error {
	release, err := limiter.Acquire(ctx, reports, "customer:"+customer)
	if err != nil {
		return err // a *ratelimit.WaitError: all slots are held
	}
	defer release()
	return writeReport(ctx, customer)
}

func TestReportsAtOnce(t *testing.T) {
	limiter := ratetest.NewLimiter(t, ratelimit.Config{})
	reports := ratelimit.Policy{Name: "reports", Limit: ratelimit.Concurrency(2)}
	var within func(n int) func(context.Context, string) error
	within = func(n int) func(context.Context, string) error {
		return func(ctx context.Context, customer string) error {
			return report(ctx, limiter, reports, customer, within(n+1))
		}
	}
	var full *ratelimit.WaitError
	if err := within(0)(t.Context(), "7"); !errors.As(err, &full) || full.Result.Limit != ratelimit.Concurrency(2) {
		t.Errorf("a report within reports: %v", err)
	}
	if err := report(t.Context(), limiter, reports, "7", func(context.Context, string) error { return nil }); err != nil {
		t.Error(err)
	}
}
