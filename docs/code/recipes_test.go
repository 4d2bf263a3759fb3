package code_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// API keys with tiers

type account struct{ id, plan string }

type accountKey struct{}

// requireAPIKey answers 401 to a request without a known key, and puts the account into the context of others.
func requireAPIKey(find func(apiKey string) (account, bool)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, ok := find(r.Header.Get("X-Api-Key"))
			if !ok {
				http.Error(w, "unknown API key", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, a)))
		})
	}
}

var plans = map[string]ratelimit.Limit{
	"free":     ratelimit.PerMinute(60).WithBurst(10),
	"pro":      ratelimit.PerMinute(600).WithBurst(100),
	"internal": ratelimit.Unlimited,
}

func tieredAPI(limiter *ratelimit.Limiter, find func(apiKey string) (account, bool)) http.Handler {
	r := chi.NewRouter()
	perAddress := ratelimit.Policy{Name: "address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(3000)}
	perAccount := ratelimit.Policy{
		Name: "account",
		Key: ratelimit.ContextKey("account", func(ctx context.Context) (string, bool) {
			a, ok := ctx.Value(accountKey{}).(account)
			return a.id, ok
		}),
		Limit: plans["free"],
		LimitFunc: func(r *http.Request) ratelimit.Limit {
			a, _ := r.Context().Value(accountKey{}).(account)
			return plans[a.plan] // the zero Limit of an unknown plan stands for Policy.Limit
		},
	}
	r.Use(limiter.Limit(perAddress)) // limits guesses of keys
	r.Use(requireAPIKey(find))
	r.Use(limiter.Limit(perAccount))
	r.Get("/", ratetest.OK)
	return r
}

func TestRecipeTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := map[string]account{
			"key-1": {"1", "free"}, "key-1b": {"1", "free"}, "key-2": {"2", "pro"}, "key-3": {"3", "internal"}, "key-4": {"4", "?"},
		}
		h := tieredAPI(ratetest.Quiet(t), func(key string) (account, bool) { a, ok := accounts[key]; return a, ok })
		for i, want := range map[int]int{1: 10, 2: 100, 3: 150, 4: 10, 5: 0} {
			if got := countAllowed(h, 150, fmt.Sprint("203.0.113.", i), fmt.Sprint("key-", i)); got != want {
				t.Errorf("account %d was allowed %d requests of 150, want %d", i, got, want)
			}
		}
		if got := countAllowed(h, 5, "192.0.2.1", "key-1b"); got != 0 {
			t.Errorf("another key of an account was allowed %d requests", got)
		}
		accounts["key-1"] = account{"1", "pro"} // an upgrade fills no bucket: it refills ten times as fast
		if got := countAllowed(h, 5, "192.0.2.1", "key-1"); got != 0 {
			t.Errorf("a larger plan filled a bucket: %d requests were allowed", got)
		}
		time.Sleep(time.Second)
		if got := countAllowed(h, 20, "192.0.2.1", "key-1"); got != 10 {
			t.Errorf("after the upgrade %d requests were allowed in a second, want 10", got)
		}
		if got := countAllowed(h, 1200, "192.0.2.2", "key-3"); got != 1200 {
			t.Errorf("an account without a limit was allowed %d requests of 1,200 from one address", got)
		}
		countAllowed(h, 3000, "192.0.2.9", "a guess")
		if w := sendTo(h, "GET", "/", "192.0.2.9", "", "X-Api-Key", "key-2"); w.Code != http.StatusTooManyRequests {
			t.Errorf("after 3,000 guesses from one address: %d, want 429", w.Code)
		}
	})
}

// countAllowed returns how many of n requests with an API key are answered 200.
func countAllowed(h http.Handler, n int, addr, key string) (allowed int) {
	for range n {
		if sendTo(h, "GET", "/", addr, "", "X-Api-Key", key).Code == http.StatusOK {
			allowed++
		}
	}
	return allowed
}

// sendTo serves a request of a client at addr. A body is a form.
func sendTo(h http.Handler, method, target, addr, form string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form))
	r.RemoteAddr = addr + ":1234"
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Member, organisation and all clients

func searchAPI(limiter *ratelimit.Limiter, members *jwtkey.Keys, search http.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	perAddress := ratelimit.Policy{Name: "search-address", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(1000)}
	perMember := ratelimit.Policy{
		Name:  "search-member",
		Key:   members.Claim("sub"),
		Limit: ratelimit.PerMinute(30).WithBurst(10),
	}
	perOrg := ratelimit.Policy{
		Name:     "search-org",
		Key:      members.ClaimAs("org", "org_id"),
		Limit:    ratelimit.PerMinute(300).WithBurst(15),
		Optional: true, // tokens without org_id are under no organisation's limit
	}
	forAll := ratelimit.Policy{
		Name:   "search-all",
		Key:    ratelimit.Static("search"),
		Limit:  ratelimit.PerSecond(20),
		Hidden: true, // clients share it: it is in no header, and its denials name no policy
	}
	r.Use(limiter.Limit(perAddress)) // a separate call: it limits forged tokens before they are verified
	r.With(limiter.Limit(perMember, perOrg, forAll)).Get("/search", search)
	return r
}

func TestRecipeMemberOrganisationAndAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		h := searchAPI(limiter, ratelimit.Must(jwtkey.New(ratetest.HS256Config())), ratetest.OK)
		search := func(sub, more string) *httptest.ResponseRecorder {
			token := ratetest.HS256(ratetest.Valid(`"sub": "` + sub + `"` + more))
			return sendTo(h, "GET", "/search", "192.0.2.1", "", "Authorization", "Bearer "+token)
		}
		allowed := func(n int, sub, more string) (allowed int) {
			for range n {
				if search(sub, more).Code == http.StatusOK {
					allowed++
				}
			}
			return allowed
		}
		const org = `, "org_id": "7"`
		if got := allowed(14, "1", org); got != 10 {
			t.Errorf("a member was allowed %d requests, want 10", got)
		}
		// The four that were denied have spent nothing of the organisation's 15.
		if got := allowed(10, "2", org); got != 5 {
			t.Errorf("another member of the organisation was allowed %d requests, want 5", got)
		}
		// Nor have those that the organisation denied spent anything of the limit for all.
		if got := allowed(10, "3", ""); got != 5 {
			t.Errorf("a member of no organisation was allowed %d requests of the 20 for all, want 5", got)
		}
		w := search("3", "")
		if limit, body := w.Header().Get("X-RateLimit-Limit"), w.Body.String(); limit != "10" || strings.Contains(body, "search-all") {
			t.Errorf("limit %q, body %s: the policy for all clients is shown", limit, body)
		}

		// Forged tokens are refused for what they are, until their address has spent its limit.
		statuses := make(map[int]int)
		for range 1100 {
			statuses[sendTo(h, "GET", "/search", "192.0.2.2", "", "Authorization", "Bearer a.b.c").Code]++
		}
		if statuses[403] != 1000 || statuses[429] != 100 {
			t.Errorf("forged tokens were answered %v, want 403 for 1,000 and 429 for the others", statuses)
		}
	})
}

// Failed logins

func loginForm(limiter *ratelimit.Limiter, passwordIsRight func(name, password string) bool) (http.Handler, ratelimit.Policy) {
	r := chi.NewRouter()
	perAddress := ratelimit.Policy{
		Name:       "login-address",
		Key:        ratelimit.RemoteIP(),
		Limit:      ratelimit.Every(time.Minute).WithBurst(20),
		Settle:     ratelimit.FailedLogins, // a login that has succeeded costs nothing
		FailClosed: true,
	}
	perName := ratelimit.Policy{
		Name:       "login-name",
		Limit:      ratelimit.Every(15 * time.Minute).WithBurst(5),
		FailClosed: true,
	}
	login := func(w http.ResponseWriter, r *http.Request) {
		name := strings.ToLower(r.PostFormValue("name"))
		key := "name:" + name
		if !limiter.Admit(w, r, ratelimit.Charge{Policy: perName, Key: key}) {
			return // answered with 429, or with 503 while Redis is unavailable
		}
		if !passwordIsRight(name, r.PostFormValue("password")) {
			http.Error(w, "wrong name or password", http.StatusUnauthorized)
			return
		}
		if _, err := limiter.Refund(r.Context(), perName, key, 1); err != nil {
			log.Print(err) // this login counts as a failed one
		}
		fmt.Fprintln(w, "welcome")
	}
	r.With(limiter.Limit(perAddress)).Post("/login", login)
	return r, perName
}

func unlock(ctx context.Context, limiter *ratelimit.Limiter, perName ratelimit.Policy) error {
	_, err := limiter.Reset(ctx, perName, "name:ann")
	return err
}

func TestRecipeFailedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		h, perName := loginForm(limiter, func(_, password string) bool { return password == "sesame" })
		login := func(addr, name, password string) int {
			return sendTo(h, "POST", "/login", addr, url.Values{"name": {name}, "password": {password}}.Encode()).Code
		}
		want := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d, want %d", what, got, want)
			}
		}
		for range 30 {
			want("a right password", login("192.0.2.1", "ann", "sesame"), 200)
		}
		for i := range 5 {
			want("a wrong password", login(fmt.Sprintf("192.0.2.%d", 10+i), []string{"ann", "ANN", "Ann"}[i%3], "?"), 401)
		}
		want("a sixth password from a new address", login("192.0.2.1", "ann", "sesame"), 429)
		want("another name", login("192.0.2.1", "bob", "sesame"), 200)
		time.Sleep(15 * time.Minute)
		want("one more password after 15 minutes", login("192.0.2.1", "ann", "?"), 401)
		want("and no other", login("192.0.2.1", "ann", "sesame"), 429)
		if err := unlock(t.Context(), limiter, perName); err != nil {
			t.Error(err)
		}
		want("after the reset", login("192.0.2.1", "ann", "sesame"), 200)

		// One address that tries one password for many names.
		for i := range 20 {
			want("a wrong password for each name", login("198.51.100.1", fmt.Sprint("name", i), "?"), 401)
		}
		want("a name that is new to the address", login("198.51.100.1", "carol", "sesame"), 429)
		want("the same name elsewhere", login("192.0.2.1", "carol", "sesame"), 200)
	})
}

// Five failures, then 15 minutes

func fiveFailures(limiter *ratelimit.Limiter, logIn http.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	login := ratelimit.Policy{
		Name:       "login",
		Key:        ratelimit.RemoteIP(),
		Limit:      ratelimit.Limit{Rate: 5, Per: 15 * time.Minute},
		LockFor:    15 * time.Minute,
		Settle:     ratelimit.FailedLogins,
		FailClosed: true,
	}
	r.With(limiter.Limit(login)).Post("/login", logIn)
	return r
}

// The rows of the recipe's table.
func TestRecipeFiveFailuresThen15Minutes(t *testing.T) {
	logIn := func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	}
	slow := ratetest.PerIP("login", ratelimit.Every(15*time.Minute).WithBurst(5))
	slow.Settle = ratelimit.FailedLogins
	for name, c := range map[string]struct {
		mount func(*ratelimit.Limiter) http.Handler
		// The statuses of wrong passwords.
		after15, afterSuccess, everyThree []int
		hour                              int
	}{
		"with LockFor": {
			func(l *ratelimit.Limiter) http.Handler { return fiveFailures(l, logIn) },
			[]int{401, 401, 401, 401, 401, 429}, []int{401, 429}, []int{401, 401, 401, 401, 401, 401}, 24,
		},
		"without": {
			func(l *ratelimit.Limiter) http.Handler { return l.Limit(slow)(http.HandlerFunc(logIn)) },
			[]int{401, 429}, []int{401, 429}, []int{401, 429, 429, 429, 401, 429}, 8,
		},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, clock := moved(t)
			h := c.mount(limiter)
			try := func(addr, password string) int {
				return sendTo(h, "POST", "/login", addr, url.Values{"password": {password}}.Encode()).Code
			}
			wrong := func(what, addr string, want ...int) {
				t.Helper()
				for i, code := range want {
					if got := try(addr, "?"); got != code {
						t.Errorf("%s: wrong password %d is answered %d, want %d", what, i+1, got, code)
					}
				}
			}
			wrong("five at once", "192.0.2.1", 401, 401, 401, 401, 401, 429)
			if w := sendTo(h, "POST", "/login", "192.0.2.1", "password=sesame"); w.Code != 429 || w.Header().Get("Retry-After") != "900" {
				t.Errorf("the right password after five failures: %d, Retry-After %s; want 429 and 900", w.Code, w.Header().Get("Retry-After"))
			}
			wrong("four at once", "192.0.2.2", 401, 401, 401, 401)
			if code := try("192.0.2.2", "sesame"); code != 200 {
				t.Errorf("the right password after four failures: %d", code)
			}
			wrong("after a success", "192.0.2.2", c.afterSuccess...)

			wrong("four at once", "192.0.2.3", 401, 401, 401, 401)
			for _, code := range c.everyThree {
				clock.Advance(3 * time.Minute)
				wrong("one each three minutes", "192.0.2.3", code)
			}
			wrong("five at once", "192.0.2.4", 401, 401, 401, 401, 401, 429)
			clock.Advance(15*time.Minute - time.Second)
			wrong("a second too early", "192.0.2.4", 429)
			clock.Advance(time.Second)
			wrong("after 15 minutes", "192.0.2.4", c.after15...)

			// A client that leaves a token as long as it can.
			failures := 0
			fail := func() {
				if try("192.0.2.5", "?") == 401 {
					failures++
				}
			}
			for range 4 {
				fail()
			}
			for range 60/3 - 1 {
				clock.Advance(3 * time.Minute)
				fail()
			}
			fail()
			if failures != c.hour {
				t.Errorf("%d failures in an hour, want %d", failures, c.hour)
			}
		})
	}
}

// Webhooks

type event struct{ endpoint, body string }

func webhooks(limiter *ratelimit.Limiter, send func(context.Context, event) error) func(context.Context, event) (time.Duration, error) {
	perEndpoint := ratelimit.Policy{Name: "webhooks", Limit: ratelimit.PerSecond(5).WithBurst(10)}
	// deliver sends e, or returns how long to wait before it is called again for e.
	deliver := func(ctx context.Context, e event) (again time.Duration, err error) {
		result, err := limiter.Take(ctx, perEndpoint, "endpoint:"+e.endpoint, 1)
		if err != nil {
			log.Print(err) // Redis failed: result.Allowed is true unless FailClosed is set
		}
		if !result.Allowed {
			return max(result.RetryAfter, time.Second/10), nil // it is 0 after an error
		}
		return 0, send(ctx, e)
	}
	return deliver
}

func TestRecipeWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		sent := make(map[string][]time.Duration)
		deliver := webhooks(ratetest.Quiet(t), func(_ context.Context, e event) error {
			sent[e.endpoint] = append(sent[e.endpoint], time.Since(start))
			return nil
		})
		type due struct {
			event
			at time.Time
		}
		var queue []due
		for range 12 {
			queue = append(queue, due{event{"7", "paid"}, start})
		}
		queue = append(queue, due{event{"8", "paid"}, start})
		for len(queue) > 0 {
			next := queue[0]
			queue = queue[1:]
			time.Sleep(time.Until(next.at))
			again, err := deliver(t.Context(), next.event)
			if err != nil {
				t.Fatal(err)
			}
			if again > 0 {
				next.at = time.Now().Add(again)
				queue = append(queue, next)
			}
		}
		if len(sent["7"]) != 12 || sent["7"][9] != 0 || sent["7"][10] != 200*time.Millisecond || sent["7"][11] != 400*time.Millisecond {
			t.Errorf("to a busy endpoint: %v, want ten at once, one after 200 ms and one after 400 ms", sent["7"])
		}
		if !slices.Equal(sent["8"], []time.Duration{0}) {
			t.Errorf("to another endpoint: %v, want one at once", sent["8"])
		}
	})
}

// Downloads by bytes

type export struct {
	url  string
	size int64
}

func downloads(limiter *ratelimit.Limiter, serveFile http.HandlerFunc, find func(name string) export) (http.Handler, ratelimit.Policy) {
	r := chi.NewRouter()
	perAddress := ratelimit.Policy{
		Name:  "kilobytes",
		Key:   ratelimit.RemoteIP(),
		Limit: ratelimit.PerHour(100_000).WithBurst(20_000), // 100 MB an hour, of which 20 MB at once
		Settle: func(_ *http.Request, response ratelimit.Response) int64 {
			return (response.Bytes + 999) / 1000
		},
	}
	r.With(limiter.Limit(perAddress)).Get("/files/{name}", serveFile)

	r.With(limiter.Limit(perAddress)).Get("/exports/{name}", func(w http.ResponseWriter, r *http.Request) {
		export := find(r.PathValue("name"))
		ratelimit.SetCost(r.Context(), "kilobytes", export.size/1000) // the bytes come from another server
		http.Redirect(w, r, export.url, http.StatusFound)
	})
	return r, perAddress
}

func TestRecipeDownloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		h, policy := downloads(limiter, func(w http.ResponseWriter, r *http.Request) {
			w.Write(make([]byte, map[string]int{"small": 1500, "large": 20_000_000}[r.PathValue("name")]))
		}, func(string) export { return export{"https://files.example/a", 6_000_000} })
		get := func(path string, want int) {
			t.Helper()
			if got := sendTo(h, "GET", path, "192.0.2.1", "").Code; got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
		}
		left := func(want int64) {
			t.Helper()
			state, err := limiter.Peek(t.Context(), policy, "ip:192.0.2.1")
			if err != nil || state.Remaining != want {
				t.Errorf("%d kilobytes are left, error %v; want %d", state.Remaining, err, want)
			}
		}
		get("/files/small", 200)
		left(19_998)
		get("/exports/a", 302)
		left(13_998)
		get("/files/large", 200) // 20,000 of 13,998: a debt of 6,002
		get("/files/small", 429)
		time.Sleep(6_002 * time.Hour / 100_000)
		get("/files/small", 429)
		time.Sleep(time.Hour / 100_000)
		get("/files/small", 200)
	})
}

// Tokens of a language model

type usage struct{ prompt, answer int64 }

func completions(limiter *ratelimit.Limiter, complete func(http.ResponseWriter, *http.Request) (usage, error)) (http.Handler, ratelimit.Policy) {
	r := chi.NewRouter()
	const longestAnswer = 1000
	tokens := ratelimit.Policy{
		Name:  "llm",
		Key:   ratelimit.RemoteIP(),
		Limit: ratelimit.PerMinute(20_000).WithBurst(40_000),
		Cost: func(r *http.Request) int64 { // an estimate: about four bytes make a token
			return max(r.ContentLength, 0)/4 + longestAnswer
		},
		Settle: func(_ *http.Request, response ratelimit.Response) int64 {
			return response.Cost // the estimate, if the handler does not call SetCost
		},
	}
	r.With(limiter.Limit(tokens)).Post("/complete", func(w http.ResponseWriter, r *http.Request) {
		used, err := complete(w, r)
		ratelimit.SetCost(r.Context(), "llm", used.prompt+used.answer)
		if err != nil {
			http.Error(w, "the model is unavailable", http.StatusBadGateway)
		}
	})
	return r, tokens
}

func TestRecipeTokensOfAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		use, fail := usage{}, error(nil)
		h, policy := completions(limiter, func(http.ResponseWriter, *http.Request) (usage, error) { return use, fail })
		post := func(size, want int, left int64) {
			t.Helper()
			w := sendTo(h, "POST", "/complete", "192.0.2.1", strings.Repeat("a", size))
			state, err := limiter.Peek(t.Context(), policy, "ip:192.0.2.1")
			if err != nil || w.Code != want || state.Remaining != left {
				t.Errorf("%d with %d left, error %v; want %d with %d left", w.Code, state.Remaining, err, want, left)
			}
		}
		use = usage{100, 250}
		post(400, 200, 39_650)
		use, fail = usage{}, errors.New("no answer")
		post(400, 502, 39_650) // costs nothing
		if w := sendTo(h, "POST", "/complete", "192.0.2.1", strings.Repeat("a", 160_000)); w.Code != 429 || w.Header().Get("Retry-After") != "" {
			t.Errorf("a prompt above the burst: %d, Retry-After %q; want 429 and none", w.Code, w.Header().Get("Retry-After"))
		}
		use, fail = usage{1000, 45_000}, nil
		post(4000, 200, 0) // into debt: 6,350 below 0
		time.Sleep(time.Minute * (6_350 + 1_999) / 20_000)
		post(4000, 429, 1_999)
		time.Sleep(time.Minute / 20_000)
		use = usage{10, 10}
		post(4000, 200, 1_980)
	})
}

// Queues of workers

// A queue holds jobs, such as a list in Redis or a message broker.
type queue interface {
	next(context.Context) (job, error) // blocks until there is a job, or until the context ends
	putBack(job)                       // tries until the queue has the job
}

type job func(context.Context)

func partnerWorker(limiter *ratelimit.Limiter) func(context.Context, queue) error {
	partner := ratelimit.Policy{Name: "partner-api", Limit: ratelimit.PerSecond(10).WithBurst(1), FailClosed: true}
	doOne := func(stop context.Context, jobs queue) error {
		job, err := jobs.next(stop)
		if err != nil {
			return err
		}
		if _, err := limiter.Wait(stop, partner, "partner:7", 1); err != nil {
			jobs.putBack(job) // otherwise the job is lost
			return err
		}
		job(context.WithoutCancel(stop)) // a stop does not interrupt the job
		return nil
	}
	return doOne
}

// A backlog is a queue in memory with room for all jobs of a test.
type backlog chan job

func (b backlog) next(ctx context.Context) (job, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case j := <-b:
		return j, nil
	}
}

func (b backlog) putBack(j job) { b <- j }

func TestRecipeWorkersLoseNoJobAtAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doOne := partnerWorker(ratetest.Quiet(t))
		start := time.Now()
		begun := make(chan time.Duration, 21)
		jobs := make(backlog, cap(begun))
		for range cap(jobs) {
			jobs <- func(ctx context.Context) {
				begun <- time.Since(start)
				time.Sleep(150 * time.Millisecond)
				if ctx.Err() != nil {
					t.Error("a job was interrupted")
				}
			}
		}
		stop, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1060*time.Millisecond, cancel)
		var workers sync.WaitGroup
		for range 5 {
			workers.Go(func() {
				for doOne(stop, jobs) == nil {
				}
			})
		}
		workers.Wait()
		if took := time.Since(start); took != 1150*time.Millisecond {
			t.Errorf("the workers ended after %v, want them to end with their last job after 1.15s", took)
		}
		if len(begun) != 11 || len(jobs) != 10 {
			t.Errorf("%d jobs were done and %d are left, want 11 and 10", len(begun), len(jobs))
		}
		for i := range len(begun) {
			if at, want := <-begun, time.Duration(i)*time.Second/10; at != want {
				t.Errorf("job %d was begun after %v, want %v", i, at, want)
			}
		}
	})
}

// Fan-out under two limits

type message string

func tenantSender(limiter *ratelimit.Limiter, send func(context.Context, message)) func(context.Context, string, []message) []message {
	perTenant := ratelimit.Policy{Name: "tenant", Limit: ratelimit.PerSecond(5), FailClosed: true}
	provider := ratelimit.Policy{Name: "provider", Limit: ratelimit.PerSecond(10), FailClosed: true}
	// sendAll sends messages to a tenant, one after the other, until stop ends. It returns those that it has not sent.
	sendAll := func(stop context.Context, tenant string, messages []message) (left []message) {
		for len(messages) > 0 && stop.Err() == nil {
			_, err := limiter.WaitAll(stop,
				ratelimit.Charge{Policy: perTenant, Key: "tenant:" + tenant},
				ratelimit.Charge{Policy: provider, Key: "provider:mail"},
			)
			if err != nil {
				time.Sleep(300 * time.Millisecond) // because WaitAll does not block while Redis is unavailable
				continue
			}
			send(context.WithoutCancel(stop), messages[0]) // a stop does not interrupt the message
			messages = messages[1:]
		}
		return messages
	}
	return sendAll
}

// One goroutine for each tenant holds up nobody, and all together have what the provider allows.
func TestRecipeFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan struct{}, 1000)
		sendAll := tenantSender(ratetest.Quiet(t), func(context.Context, message) { sent <- struct{}{} })
		stop, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		var sending sync.WaitGroup
		sending.Go(func() { sendAll(stop, "large", make([]message, 100)) })
		sending.Go(func() {
			time.Sleep(time.Millisecond)
			if left := sendAll(stop, "small", make([]message, 2)); len(left) > 0 || time.Since(begin) > 300*time.Millisecond {
				t.Errorf("%d messages to small are left after %v, want none at once", len(left), time.Since(begin))
			}
			time.Sleep(2 * time.Second)
			cancel()
		})
		sending.Wait()
		if n := len(sent); n < 2+13 || n > 2+15 { // of large, 5 at once and 5 a second
			t.Errorf("%d messages were sent in %v, want 17 or a few less", n, time.Since(begin))
		}
	})
}

// Block a client

func keepOut(ctx context.Context, limiter *ratelimit.Limiter) error {
	api := ratelimit.Policy{Name: "api"} // the name is enough
	_, err := limiter.Block(ctx, api, "ip:192.0.2.1", time.Hour, "alice: scrapes prices")
	return err
}

func letIn(ctx context.Context, limiter *ratelimit.Limiter) error {
	api := ratelimit.Policy{Name: "api"}
	_, err := limiter.Unblock(ctx, api, "ip:192.0.2.1") // with the tokens that it has
	return err
}

func fill(ctx context.Context, limiter *ratelimit.Limiter) error {
	api := ratelimit.Policy{Name: "api"}
	_, err := limiter.Reset(ctx, api, "ip:192.0.2.1") // with a full bucket
	return err
}

func TestRecipeBlock(t *testing.T) {
	shared := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { shared.Close() })
	replica := func() *ratelimit.Limiter {
		return ratetest.NewLimiter(t, ratelimit.Config{Store: shared, Policies: []ratelimit.Policy{ratetest.PerIP("api", ratelimit.PerHour(3))}})
	}
	here, elsewhere := replica(), replica()
	for _, step := range []struct {
		do   func(context.Context, *ratelimit.Limiter) error
		want []int
	}{
		{keepOut, []int{429, 429}},
		{letIn, []int{200}},
		{keepOut, []int{429}},
		{letIn, []int{200, 200, 429}},
		{keepOut, []int{429}},
		{fill, []int{200, 200, 200, 429}},
	} {
		if err := step.do(t.Context(), here); err != nil {
			t.Fatal(err)
		}
		ratetest.WantStatuses(t, elsewhere.Handler(ratetest.OK), step.want, ratetest.From("192.0.2.1"))
	}
	ratetest.WantStatuses(t, elsewhere.Handler(ratetest.OK), []int{200}, ratetest.From("192.0.2.2"))
}
