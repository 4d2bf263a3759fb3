package code_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
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
		Key: ratelimit.ContextKey(func(ctx context.Context) (string, bool) {
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

func TestRecipeTiersByGuessesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		perAddress := ratetest.PerIP("address", ratelimit.PerMinute(60).WithBurst(30))
		perAddress.Settle = func(_ *http.Request, response ratelimit.Response) int64 {
			if response.Status == http.StatusUnauthorized {
				return 1
			}
			return 0
		}
		check := requireAPIKey(func(key string) (account, bool) { return account{"3", "internal"}, key == "key-3" })
		atOnce := make(chan bool)
		h := limiter.Limit(perAddress)(check(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				<-atOnce
			}
			ratetest.OK(w, r)
		})))
		if got := countAllowed(h, 1000, "192.0.2.1", "key-3"); got != 1000 {
			t.Errorf("%d requests of 1,000 with a key were allowed", got)
		}
		var allowed atomic.Int64
		var clients sync.WaitGroup
		for range 40 { // ten more than the burst are under way
			clients.Go(func() {
				if sendTo(h, "POST", "/", "192.0.2.1", "", "X-Api-Key", "key-3").Code == http.StatusOK {
					allowed.Add(1)
				}
			})
		}
		synctest.Wait()
		close(atOnce)
		clients.Wait()
		if got := allowed.Load(); got != 30 {
			t.Errorf("%d requests at once were allowed, want the burst, 30", got)
		}
		for range 30 {
			if w := sendTo(h, "GET", "/", "192.0.2.1", "", "X-Api-Key", "a guess"); w.Code != http.StatusUnauthorized {
				t.Errorf("a guess: %d, want 401", w.Code)
			}
		}
		if got := countAllowed(h, 1, "192.0.2.1", "key-3"); got != 0 {
			t.Error("a request after 30 guesses was allowed")
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
		h := searchAPI(limiter, ratetest.Must(jwtkey.New(ratetest.HS256Config())), ratetest.OK)
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

// A right password does not count if the client leaves while it is checked.
func TestRecipeFailedLoginsOfClientsThatLeave(t *testing.T) {
	limiter := ratetest.Quiet(t)
	var leave context.CancelFunc
	h, perName := loginForm(limiter, func(string, string) bool { leave(); return true })
	for range 10 {
		r := httptest.NewRequest("POST", "/login", strings.NewReader("name=ann&password=sesame"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		ctx, cancel := context.WithCancel(t.Context())
		leave = cancel
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		cancel()
	}
	if state, err := limiter.Peek(t.Context(), perName, "name:ann"); err != nil || state.Remaining != 5 {
		t.Errorf("%d failed logins are left of 5, error %v", state.Remaining, err)
	}
}

// Logins hold their tokens while they are checked.
func TestRecipeFailedLoginsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		h, _ := loginForm(limiter, func(string, string) bool { time.Sleep(time.Second); return true })
		var mu sync.Mutex
		got := make(map[string]int)
		var clients sync.WaitGroup
		for i := range 25 {
			name := "ann"
			if i >= 7 {
				name = fmt.Sprint("name", i)
			}
			clients.Go(func() {
				w := sendTo(h, "POST", "/login", "192.0.2.1", url.Values{"name": {name}, "password": {"sesame"}}.Encode())
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After"))]++
			})
			synctest.Wait()
		}
		clients.Wait()
		// Two of ann's seven are denied by name, and count for the address. So 13 of the 18 others are allowed.
		want := map[string]int{"200 ": 5 + 13, "429 900": 2, "429 60": 5}
		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// The address and the name in one Admit: a locked name spends nothing of the address.
func TestRecipeFailedLoginsByOneAdmit(t *testing.T) {
	limiter := ratetest.Quiet(t)
	perAddress := ratetest.PerIP("login-address", ratelimit.Every(time.Minute).WithBurst(20))
	perName := ratelimit.Policy{Name: "login-name", Limit: ratelimit.Every(15 * time.Minute).WithBurst(5)}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address, err := perAddress.Key(r)
		if err != nil {
			t.Fatal(err)
		}
		if limiter.Admit(w, r, ratelimit.Charge{Policy: perAddress, Key: address}, ratelimit.Charge{Policy: perName, Key: "name:ann"}) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	ratetest.WantStatuses(t, h, []int{401, 401, 401, 401, 401, 429, 429, 429}, ratetest.From("192.0.2.1"))
	if state, err := limiter.Peek(t.Context(), perAddress, "ip:192.0.2.1"); err != nil || state.Remaining != 15 {
		t.Errorf("%d are left of the address's 20, error %v; want 15", state.Remaining, err)
	}
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
			synctest.Test(t, func(t *testing.T) {
				h := c.mount(ratetest.Quiet(t))
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
					time.Sleep(3 * time.Minute)
					wrong("one each three minutes", "192.0.2.3", code)
				}
				wrong("five at once", "192.0.2.4", 401, 401, 401, 401, 401, 429)
				time.Sleep(15*time.Minute - time.Second)
				wrong("a second too early", "192.0.2.4", 429)
				time.Sleep(time.Second)
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
					time.Sleep(3 * time.Minute)
					fail()
				}
				fail()
				if failures != c.hour {
					t.Errorf("%d failures in an hour, want %d", failures, c.hour)
				}
			})
		})
	}
}

// A success that forgets the failures before it.
func TestRecipeASuccessThatForgets(t *testing.T) {
	limiter := ratetest.Quiet(t)
	perName := ratelimit.Policy{Name: "login-name", Limit: ratelimit.Every(15 * time.Minute).WithBurst(5)}
	const key = "name:ann"
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !limiter.Admit(w, r, ratelimit.Charge{Policy: perName, Key: key}) {
			return
		}
		if r.PostFormValue("password") != "sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if _, err := limiter.Reset(context.WithoutCancel(r.Context()), perName, key); err != nil {
			log.Print(err) // this login and earlier failures still count
		}
		fmt.Fprintln(w, "welcome")
	})
	var got []int
	for _, password := range strings.Fields("? ? ? ? sesame ? ? ? ? ? sesame") {
		got = append(got, sendTo(h, "POST", "/login", "192.0.2.1", url.Values{"password": {password}}.Encode()).Code)
	}
	if want := []int{401, 401, 401, 401, 200, 401, 401, 401, 401, 401, 429}; !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
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
