package admin_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
)

func TestSlots(t *testing.T) { synctest.Test(t, testSlots) }

func testSlots(t *testing.T) {
	exports := ratelimit.Policy{Name: "exports", Key: ratelimit.RemoteIP(), Limit: ratelimit.Concurrency(3)}
	s := newSite(t, admin.Config{Overrides: withOverrides}, ratelimit.Config{Store: ratetest.NewStore(), Policies: []ratelimit.Policy{exports, api}})
	var held []func()
	acquire := func() {
		t.Helper()
		release, err := s.limiter.Acquire(context.Background(), exports, "ip:192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
		time.Sleep(time.Second) // the page keeps its facts for so long
	}
	ofExports := form("ip:192.0.2.1", "policy", "exports", "n", "1", "for", "1h")
	key := func(texts ...string) string {
		t.Helper()
		page := s.get("key?key=ip:192.0.2.1&policy=exports", asBrowser)
		checkPage(t, page)
		s.want(page, 200, texts...)
		text := page.Body.String()
		if strings.Contains(text, "Inf") || strings.Contains(text, "NaN") {
			t.Errorf("a rate, where none is: %s", text)
		}
		card, _, _ := strings.Cut(text[strings.Index(text, `id="of-exports"`):], "</section>")
		for _, form := range []string{"key/reset", "key/refund", "tokens"} {
			if strings.Contains(card, form) {
				t.Errorf("the card of slots has %s: %s", form, card)
			}
		}
		return card
	}
	key("3 at once", "0 of 3 slots held", "No request holds a slot.", `width="0.00"`)
	acquire()
	acquire()
	same(t, s.object("key.json?key=ip:192.0.2.1&policy=exports"), map[string]any{
		"buckets.0.policy": "exports", "buckets.0.state": "ready", "buckets.0.limit": "3 at once", "buckets.0.burst": 3, "buckets.0.held": 2, "buckets.0.tokens": 1,
		"buckets.0.per_second": 0, "buckets.0.next_in_seconds": 0, "buckets.1.held": nil,
	})
	key("2 of 3 slots held", "The next request takes a slot that is free.", `aria-valuenow="2"`)
	s.want(s.get("", asBrowser), 200, "3 at once", "Slots held by this replica: 2.")
	s.want(s.get("top?policy=exports", asBrowser), 200, "3 at once", "Slots held by this replica: 2.")
	same(t, s.object("facts.json"), map[string]any{"policies.0.name": "exports", "policies.0.limit": "3 at once", "policies.0.held": 2, "policies.1.held": nil})

	acquire()
	key("3 of 3 slots held", "The next request is allowed when another one releases its slot.", `data-state="empty"`, `width="100.00"`)
	s.use("192.0.2.1", 1)
	time.Sleep(time.Second)
	same(t, s.object("top.json?policy=exports"), map[string]any{"keys.0.key": "ip:192.0.2.1", "keys.0.requests": 4, "keys.0.denied": 1})
	for _, action := range []string{"reset", "refund"} {
		s.want(s.post("key/"+action, ofExports, asBrowser), 409, "Nothing was changed: requests hold the slots of this policy until they end.")
	}
	s.want(s.post("key/block", ofExports), 303)
	key("Blocked")
	s.want(s.post("key/unblock", ofExports), 303)

	s.want(s.setLimit("5 at once", "policy", "exports"), 303)
	key("5 at once", "3 of 5 slots held")
	s.want(s.setLimit("5/1m", "policy", "exports", "force", "1"), 400, "is no concurrency limit")
	for _, release := range held {
		release()
	}
	time.Sleep(time.Second)
	key("0 of 5 slots held", "No request holds a slot.")
	s.want(s.get("", asBrowser), 200, "Slots held by this replica: 0.")
}
