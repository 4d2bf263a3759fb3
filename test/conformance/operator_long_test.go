//go:build long

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A replica is one of several services with the same limits and the same Redis, each with a page.
type replica struct {
	*testing.T
	service http.Handler
	page    string // its address
}

func newReplica(t *testing.T, redis *redistest.Server) *replica {
	backed := ratelimit.Must(fallback.New(ratelimit.Must(redisstore.New(redis.Client(), redisstore.Config{})), nil, fallback.Config{Slow: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})) // for a busy machine
	t.Cleanup(func() { backed.Close() })
	counts, top := observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:   backed,
		Timeout: 2 * time.Second,
		Policies: []ratelimit.Policy{
			{Name: "api", Key: func(r *http.Request) (string, error) { return r.Header.Get("X-Member"), nil }, Limit: ratelimit.PerHour(20), LimitFunc: func(r *http.Request) ratelimit.Limit {
				if r.Header.Get("X-Plan") == "pro" {
					return ratelimit.PerHour(60).WithBurst(50)
				}
				return ratelimit.Limit{}
			}},
		},
		Observe: observe.Join(counts.Observe, top.Observe),
		Logger:  slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(func() { limiter.Close() })
	page := admin.Handler(limiter, admin.Loopback, admin.Config{Counts: counts, Top: top, Logger: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(http.StripPrefix("/admin", page))
	t.Cleanup(server.Close)
	return &replica{T: t, service: limiter.Handler(ratetest.OK), page: server.URL + "/admin/"}
}

// ask sends a request of a member, and reports whether it was allowed.
func (r *replica) ask(member string, header ...string) bool {
	request := httptest.NewRequest("GET", "/", nil)
	request.Header.Set("X-Member", member)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.service.ServeHTTP(w, request)
	if w.Code != 200 && w.Code != 429 {
		r.Errorf("%s is answered %d", member, w.Code)
	}
	return w.Code == 200
}

// allowed sends n requests of a member, and returns how many were allowed.
func (r *replica) allowed(n int, member string, header ...string) (allowed int) {
	for range n {
		if r.ask(member, header...) {
			allowed++
		}
	}
	return allowed
}

// get reads a JSON document of the page.
func (r *replica) get(path string, into any) {
	r.Helper()
	response, err := http.Get(r.page + path)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		r.Fatalf("%s: status %d, %v: %s", path, response.StatusCode, err, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		r.Fatalf("%s: %v in %s", path, err, text)
	}
}

// change does what a button of the page does.
func (r *replica) change(action, member string, more ...string) {
	r.Helper()
	form := url.Values{"policy": {"api"}, "key": {member}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	response, err := http.PostForm(r.page+"key/"+action, form)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != 200 {
		r.Fatalf("%s: status %d: %s", action, response.StatusCode, text)
	}
}

type (
	storeState struct {
		State, Kind, Reason string
	}
	keysOfPolicy struct {
		Keys []struct {
			Key                     string
			Requests, Denied, Error int64
		}
	}
	bucketsOfKey struct {
		Store   storeState
		Buckets []struct {
			Policy, State, Limit string
			Burst                int64
			Blocked, Degraded    bool
		}
	}
)

// An operator finds a flood of one key among 100,000, keeps it out, lets it in, and helps a member. Then Redis ends.
func TestAnOperatorsDay(t *testing.T) {
	redis := redistest.Start(t)
	replicas := []*replica{newReplica(t, redis), newReplica(t, redis), newReplica(t, redis)}
	everywhere := func(do func(*replica) bool) (yes int) {
		for _, r := range replicas {
			if do(r) {
				yes++
			}
		}
		return yes
	}

	const members, floods = 100_000, 2_000
	var next, flooding atomic.Int64
	var traffic sync.WaitGroup
	for caller := range 48 {
		traffic.Go(func() {
			r := replicas[caller%len(replicas)]
			for i := next.Add(1); i <= members; i = next.Add(1) {
				r.ask(fmt.Sprint("member:", i))
				if i%(members/floods) == 0 && r.ask("flood") {
					flooding.Add(1)
				}
			}
		})
	}
	traffic.Wait()
	if n := flooding.Load(); n != 20 {
		t.Errorf("%d requests of the flood were allowed, want 20", n)
	}

	// The page of each replica has the sum over all of them.
	for i, r := range replicas {
		eventually(t, 6*time.Second, fmt.Sprintf("the page of replica %d has the whole flood", i), func() bool {
			var top keysOfPolicy
			r.get("top.json?policy=api", &top)
			if len(top.Keys) == 0 || top.Keys[0].Key != "flood" {
				return false
			}
			flood := top.Keys[0]
			return flood.Requests >= floods && flood.Requests-flood.Error <= floods && flood.Denied > 0
		})
	}

	// With a full bucket, so that only a block can refuse it.
	replicas[0].change("reset", "flood")
	replicas[1].change("block", "flood", "for", "1h")
	var blocked sync.WaitGroup
	for range 20 {
		for i, r := range replicas {
			blocked.Go(func() {
				if r.ask("flood") {
					t.Errorf("replica %d allows what is blocked", i)
				}
			})
		}
	}
	blocked.Wait()
	for i, r := range replicas {
		var key bucketsOfKey
		r.get("key.json?key=flood", &key)
		if len(key.Buckets) != 1 || !key.Buckets[0].Blocked || key.Buckets[0].State != "blocked" {
			t.Errorf("replica %d: the page says %+v", i, key)
		}
	}
	replicas[2].change("unblock", "flood")
	for _, r := range replicas {
		eventually(t, 3*time.Second, "all replicas allow the flood again", func() bool { return r.ask("flood") })
	}

	// A member with a tier of its own: the page resets its bucket under its limit.
	if n := replicas[0].allowed(60, "member:pro", "X-Plan", "pro"); n != 50 {
		t.Errorf("%d requests of a plan with a burst of 50 were allowed", n)
	}
	var key bucketsOfKey
	replicas[1].get("key.json?key=member:pro", &key)
	if len(key.Buckets) != 1 || key.Buckets[0].Burst != 50 || key.Buckets[0].State != "empty" {
		t.Errorf("the page says %+v of a member that has spent a burst of 50", key)
	}
	replicas[1].change("reset", "member:pro")
	eventually(t, 3*time.Second, "the member goes on", func() bool { return replicas[2].ask("member:pro", "X-Plan", "pro") })
	if n := replicas[2].allowed(60, "member:pro", "X-Plan", "pro"); n != 49 {
		t.Errorf("%d more requests of a plan with a burst of 50 were allowed after a reset, want 49", n)
	}

	// The page says within a second that Redis is gone, and goes on.
	redis.Kill()
	var slowest time.Duration
	says := func(r *replica) storeState {
		begin := time.Now()
		var facts struct{ Store storeState }
		r.get("facts.json", &facts)
		slowest = max(slowest, time.Since(begin))
		begin = time.Now()
		var key bucketsOfKey
		r.get("key.json?key=flood", &key)
		slowest = max(slowest, time.Since(begin))
		return facts.Store
	}
	for i, r := range replicas {
		eventually(t, 5*time.Second, "the page says that Redis is gone, and why", func() bool {
			s := says(r)
			return s.State == "stand_in" && s.Reason != ""
		})
		r.change("block", "member:2", "for", "1m") // applies here
		if r.ask("member:2") {
			t.Errorf("replica %d: a block in an outage does not hold", i)
		}
	}
	if slowest > time.Second {
		t.Errorf("an answer of a page took %v", slowest)
	}
	t.Logf("the slowest answer without Redis took %v", slowest)
	redis.Restart()
	eventually(t, 20*time.Second, "all pages say that Redis is back", func() bool {
		return everywhere(func(r *replica) bool { return says(r).State == "answers" }) == 3
	})
	var facts struct {
		Store struct{ Outages []struct{ Until *time.Time } }
	}
	replicas[0].get("facts.json", &facts)
	if !slices.ContainsFunc(facts.Store.Outages, func(o struct{ Until *time.Time }) bool { return o.Until != nil }) {
		t.Errorf("the history of the fallback is %+v", facts.Store)
	}
}

func eventually(t *testing.T, within time.Duration, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > within {
			t.Fatalf("not after %v: %s", within, what)
		}
	}
}
