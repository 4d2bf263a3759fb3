package admin_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{}, ratelimit.Config{})
		s.take("ip:1", 5)
		lines := 0
		change := func(action string, f url.Values, line string) {
			t.Helper()
			s.log.Reset()
			w := s.post("key/"+action, f)
			s.want(w, 303)
			if got, want := w.Header().Get("Location"), "../key?key=ip%3A1&policy=api&done="+action; got != want {
				t.Errorf("%s: Location %q, want %q", action, got, want)
			}
			if want := `level=INFO msg="ratelimit: admin change" user=ann action=` + action + " policy=api key=ip:1 " + line + "degraded=false\n"; s.log.String() != want {
				t.Errorf("log: %q, want %q", s.log.String(), want)
			}
			lines++
			s.want(s.get(strings.TrimPrefix(w.Header().Get("Location"), "../"), asBrowser), 200, "Policy api: ")
		}
		allowed := func(want bool) {
			t.Helper()
			r, err := s.limiter.Take(context.Background(), api, "ip:1", 1)
			if err != nil || r.Allowed != want {
				t.Errorf("allowed %t, %v, want %t", r.Allowed, err, want)
			}
		}
		allowed(false)
		change("refund", form("ip:1", "n", "2"), "tokens=2 ")
		allowed(true)
		change("block", form("ip:1", "for", "15m"), "for=15m0s reason=ann ")
		allowed(false)
		time.Sleep(15*time.Minute - time.Microsecond)
		allowed(false)
		time.Sleep(time.Microsecond)
		allowed(true)
		change("block", form("ip:1", "for", " 7d"), "for=168h0m0s reason=ann ")
		allowed(false)
		change("unblock", form("ip:1"), "")
		change("reset", form("ip:1"), "")
		if n := s.remaining("ip:1"); n != 5 {
			t.Errorf("%d tokens after Reset", n)
		}
		change("block", form("ip:1", "for", "366d"), "for=8784h0m0s reason=ann ") // the longest
		change("block", form("ip:1", "for", "1h", "why", "ticket 812"), `for=1h0m0s reason="ann: ticket 812" `)
		change("reset", form("ip:1"), "")
		allowed(true) // Reset ends a block, too
	})
}

// A member with a tier of its own is reset and refunded under that tier.
func TestChangesOfATier(t *testing.T) {
	tier := ratelimit.PerHour(1000).WithBurst(100)
	tiers := ratelimit.Policy{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5), LimitFunc: func(*http.Request) ratelimit.Limit { return tier }}
	s := newSite(t, admin.Config{}, ratelimit.Config{Policies: []ratelimit.Policy{tiers}})
	s.use("192.0.2.1", 60)
	remaining := func() int64 {
		r, err := s.limiter.Peek(context.Background(), ratelimit.Policy{Name: "api", Limit: tier}, "ip:192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return r.Remaining
	}
	s.want(s.get("key?key=ip:192.0.2.1", asBrowser), 200, "40 of 100 tokens", "1,000 per hour, 100 at once")
	s.want(s.post("key/refund", form("ip:192.0.2.1", "n", "7")), 303)
	if n := remaining(); n != 47 {
		t.Errorf("%d tokens after a refund of 7, want 47", n)
	}
	s.want(s.post("key/refund", form("ip:192.0.2.1", "n", "101")), 400, "at most 100 tokens")
	s.want(s.post("key/reset", form("ip:192.0.2.1")), 303)
	if n := remaining(); n != 100 {
		t.Errorf("%d tokens after Reset, want 100", n)
	}
	s.want(s.post("key/refund", form("ip:192.0.2.1", "n", "1")), 409, "the bucket is full")
}

// curl sends JSON, or a form, and gets the buckets as they are after the change.
func TestChangesAsJSON(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	s.take("ip:1", 5)
	w := serve(s.page, "POST", "key/refund", `{"policy":"api","key":"ip:1","n":2}`, ratetest.With("Accept", "application/json"), func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") })
	s.want(w, 200, `"done": "Policy api: The tokens are back in the bucket."`, `"state": "ready"`)
	s.want(s.post("key/block", form("ip:1", "for", "1m"), asJSON), 200, `"state": "blocked"`)
	s.want(s.post("key/block", form("ip:1", "for", "1m")), 303, "Policy api: The key is blocked.")
	s.want(s.post("key/block", form("ip:1", "for", "x"), asJSON), 400, `"error": "for must be a duration`)
}

// A block of a key that no request can have would succeed and block nobody.
func TestABlockOfAKeyOfAnUnknownKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{}, ratelimit.Config{})
		const nothing = "Nothing was blocked. "
		s.want(s.post("key/block", form("203.0.113.66", "for", "1m"), asJSON), 422, nothing+"No replica has published kinds of keys yet", "add force=1")
		s.use("192.0.2.1", 1)
		s.take("all", 1)
		time.Sleep(time.Second)
		s.want(s.post("key/block", form("203.0.113.66", "for", "1m")), 422, nothing+"The key has no kind. Keys of requests begin with ip:.", "add force=1")
		s.take("member:5", 1)
		time.Sleep(time.Second)
		s.want(s.post("key/block", form("2001:db8::1", "for", "1m"), asJSON), 422, `"error": "`+nothing+"No replica has seen a key of the kind 2001:. Keys of requests begin with ip: or member:.")
		s.want(s.post("key/block", form("ip:2001:db8::1", "for", "1m")), 422, nothing+"No client has such a key. Clients with IPv6 share the key of their network. Did you mean ip:2001:db8::/64?")
		w := s.post("key/block", form("203.0.113.66", "for", "2h", "why", `<b>"`), asBrowser)
		checkPage(t, w)
		s.want(w, 422, nothing, `name="force"`, `value="2h"`, `value="&lt;b&gt;&#34;"`)
		s.want(s.post("key/block", form("203.0.113.66", "for", "1m", "force", "yes"), asJSON), 400, "force must be 1")
		if s.log.Len() > 0 {
			t.Errorf("log: %s", s.log.String())
		}
		for _, f := range []url.Values{form("ip:203.0.113.66"), form("all"), form("203.0.113.66", "force", "1")} { // a kind, and a key, that were seen
			f.Set("for", "1m")
			s.want(s.post("key/block", f), 303)
		}
	})
}

// A change with anything wrong in it is refused whole.
func TestChangesThatAreRefused(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	s.take("ip:1", 3)
	asForm := func(kind string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", kind) }
	}
	const good = "policy=api&key=ip:1&n=1&for=1m"
	for name, tt := range map[string]struct {
		body   string
		status int
		change func(*http.Request)
	}{
		"no policy":                     {"key=ip:1&n=1&for=1m", 400, nil},
		"an unknown policy":             {"policy=apj&key=ip:1&n=1&for=1m", 400, nil},
		"the name of what is left over": {"policy=_other&key=ip:1&n=1&for=1m", 400, nil},
		"two policies":                  {good + "&policy=api", 400, nil},
		"two keys":                      {good + "&key=ip:2", 400, nil},
		"no key":                        {"policy=api&n=1&for=1m", 400, nil},
		"a key in the address":          {"policy=api&n=1&for=1m", 400, func(r *http.Request) { r.URL.RawQuery = "key=ip:1" }},
		"everything in the address":     {"done=", 400, func(r *http.Request) { r.URL.RawQuery = good }},
		"no body":                       {"", 415, nil},
		"a text":                        {good, 415, asForm("text/plain")},
		"a form with files":             {good, 415, asForm("multipart/form-data; boundary=x")},
		"no type":                       {good, 415, func(r *http.Request) { r.Header.Del("Content-Type") }},
		"a malformed type":              {good, 415, asForm("application/x-www-form-urlencoded; ;")},
		"too large":                     {good + "&done=" + strings.Repeat("x", 16<<10), 413, nil},
		"malformed":                     {good + "&done=%", 400, nil},
		"malformed JSON":                {`{"policy":"api","key":"ip:1"`, 400, asForm("application/json")},
		"JSON that is not UTF-8":        {"{\"policy\":\"api\",\"key\":\"ip:\xff\",\"n\":1,\"for\":\"1m\"}", 400, asForm("application/json")},
		"JSON of half a character":      {`{"policy":"api","key":"ip:\ud800","n":1,"for":"1m"}`, 400, asForm("application/json")},
		"two objects":                   {`{"policy":"api","key":"ip:1","n":1,"for":"1m"}{}`, 400, asForm("application/json")},
		"a list":                        {`["api"]`, 400, asForm("application/json")},
		"an unknown field":              {`{"policy":"api","key":"ip:1","n":1,"for":"1m","x":1}`, 400, asForm("application/json")},
		"a field twice":                 {`{"policy":"api","policy":"api","key":"ip:1","n":1,"for":"1m"}`, 400, asForm("application/json")},
	} {
		for _, action := range []string{"reset", "refund", "block", "unblock"} {
			change := tt.change
			if change == nil {
				change = func(*http.Request) {}
			}
			if w := serve(s.page, "POST", "key/"+action, tt.body, change); w.Code != tt.status {
				t.Errorf("%s: %s: status %d, want %d: %.200s", name, action, w.Code, tt.status, w.Body)
			}
		}
	}
	for _, d := range []string{"", "0", "0s", "-1m", "999ms", "367d", "8785h", "1y", "15", "1e9s", "NaN", "9999999999h", "99999999999999999999d", "213504d", "32768d", "-1d", "d"} {
		s.want(s.post("key/block", form("ip:1", "for", d)), 400, "for must be")
	}
	for _, n := range []string{"", "0", "-1", "1.5", "x", "99999999999999999999", "+", "0x1"} {
		s.want(s.post("key/refund", form("ip:1", "n", n)), 400, "n must be a whole number of tokens, from 1 to 4,503,599,627,370,496.")
	}
	s.want(s.post("key/refund", form("ip:1", "n", "6")), 400, "at most 5 tokens")
	if n := s.remaining("ip:1"); n != 2 {
		t.Errorf("%d tokens, want 2", n)
	}
	s.take("ip:5", 5)
	s.want(s.post("key/refund", form("ip:5", "n", "5")), 303)
	if n := s.remaining("ip:5"); n != 5 {
		t.Errorf("%d tokens after a refund of the whole burst, want 5", n)
	}
	s.log.Reset()
	if r, _ := s.limiter.Peek(context.Background(), api, "ip:1"); r.Blocked {
		t.Error("the key is blocked")
	}
	if s.log.Len() > 0 && strings.Contains(s.log.String(), "INFO") {
		t.Errorf("logged as changes: %s", s.log.String())
	}
}

// A long key would make an address that proxies refuse, so its page is the answer.
func TestAChangeOfALongKey(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	long := strings.Repeat("é", 2000)
	s.take(long, 2)
	w := s.post("key/reset", form(long), asBrowser)
	s.want(w, 200, "Policy api: The bucket is full", `href="../style.css"`, `action="../key/block"`)
	checkPage(t, w)
	if n := s.remaining(long); n != 5 {
		t.Errorf("%d tokens", n)
	}
}

// While a stand-in decides, its limit may be a part of the real one.
func TestNoRefundDuringAnOutage(t *testing.T) {
	f := newFake(t)
	f.degraded = true
	s := newSite(t, admin.Config{}, ratelimit.Config{Store: f})
	s.take("ip:1", 3)
	s.want(s.post("key/refund", form("ip:1", "n", "1")), 409, "the store is unavailable")
	s.want(s.post("key/reset", form("ip:1")), 303)
	if !strings.Contains(s.log.String(), "action=reset policy=api key=ip:1 degraded=true") {
		t.Errorf("log: %s", s.log.String())
	}
}

// Policies that no request has are known by Config.Policies or by their counts.
func TestPoliciesOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, admin.Config{Policies: []ratelimit.Policy{{Name: "told", Limit: ratelimit.PerHour(1)}}}, ratelimit.Config{})
		s.want(s.post("key/block", url.Values{"policy": {"told"}, "key": {"x"}, "for": {"1h"}, "force": {"1"}}), 303)
		s.want(s.post("key/block", url.Values{"policy": {"seen"}, "key": {"x"}, "for": {"1h"}}), 400, "no policy")
		s.limiter.Take(context.Background(), ratelimit.Policy{Name: "seen", Limit: ratelimit.PerHour(1)}, "x", 1)
		time.Sleep(time.Second)
		s.want(s.post("key/block", url.Values{"policy": {"seen"}, "key": {"x"}, "for": {"1h"}}), 303)
		s.want(s.get("", asBrowser), 200, ">told<", ">seen<", "calls only")
		for i := range 130 { // more than Counts keeps apart
			s.limiter.Take(context.Background(), ratelimit.Policy{Name: fmt.Sprint("p", i), Limit: ratelimit.PerHour(1)}, "x", 1)
		}
		time.Sleep(time.Second)
		s.want(s.post("key/block", url.Values{"policy": {"_other"}, "key": {"x"}, "for": {"1h"}}), 400, "no policy")
	})
}

// The names of users go into the log and the page as text.
func TestUsersAreShownAsText(t *testing.T) {
	s := newSite(t, admin.Config{}, ratelimit.Config{})
	h := admin.Handler(s.limiter, func(*http.Request) (string, admin.Access) { return "<b>\u202eann\n", admin.Change }, admin.Config{Logger: textLogger(&s.log)})
	w := serve(h, "GET", "", "", asBrowser)
	checkPage(t, w)
	s.want(w, 200, `&lt;b&gt;\u202eann\n`)
	serve(h, "POST", "key/reset", form("x").Encode())
	if got := s.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `user=<b>\u202eann\n `) {
		t.Errorf("log: %q", got)
	}
}

// A page that is asked for by too many at once says so, and changes have places of their own.
func TestCrowds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := newSite(t, admin.Config{}, ratelimit.Config{Store: f, Timeout: time.Second})
		f.hangs = true
		statuses := make(chan int, 30)
		for range 30 {
			go func() { statuses <- s.get("key?key=x").Code }()
		}
		synctest.Wait()
		f.hangs = false
		w := s.get("key?key=x", asBrowser)
		s.want(w, 503, "Try again")
		if w.Header().Get("Retry-After") != "1" {
			t.Error("no Retry-After")
		}
		s.want(s.post("key/unblock", form("x"), asJSON), 200)
		var got []int
		for range 30 {
			got = append(got, <-statuses)
		}
		slices.Sort(got)
		if n := slices.Index(got, 503); n != 8 {
			t.Errorf("%d pages at once: %v", n, got)
		}
		s.want(s.get("key?key=x"), 200)
	})
}
