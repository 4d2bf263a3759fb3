package admin_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestBlocksInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logins := ratelimit.Policy{Name: "logins", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(3), LockFor: 30 * time.Minute}
		s := newSite(t, admin.Config{}, ratelimit.Config{Policies: []ratelimit.Policy{api, logins}})
		s.want(s.get("", asBrowser), 200, "No replica has met a block or a lock.")
		s.use("192.0.2.1", 4) // and locks it
		time.Sleep(time.Second)
		s.want(s.post("key/block", form("ip:192.0.2.2", "for", "2h", "why", "ticket 812 <b>")), 303)
		time.Sleep(time.Second)
		same(t, s.object("blocks.json"), map[string]any{
			"blocks.0.policy": "api", "blocks.0.key": "ip:192.0.2.2", "blocks.0.until": "2000-01-01T02:00:01Z", "blocks.0.locked": false, "blocks.0.reason": "ann: ticket 812 <b>",
			"blocks.1.policy": "logins", "blocks.1.key": "ip:192.0.2.1", "blocks.1.until": "2000-01-01T00:30:00Z", "blocks.1.locked": true, "blocks.2": nil,
		})
		for _, path := range []string{"", "blocks"} {
			w := s.get(path, asBrowser)
			checkPage(t, w)
			s.want(w, 200, "ann: ticket 812 &lt;b&gt;", "locked by a request", "1 Jan 02:00:01", "A block that no replica has met is not listed.", `action="key/unblock"`)
		}

		// A block that another process has ended is not in force, as a look at the store shows.
		other := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s.limiter.Store()}))
		defer other.Close()
		if _, err := other.Unblock(t.Context(), api, "ip:192.0.2.2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		same(t, s.object("facts.json"), map[string]any{"blocks.0.policy": "logins", "blocks.1": nil})
		time.Sleep(30 * time.Minute)
		same(t, s.object("blocks.json"), map[string]any{"blocks.0": nil})
	})
}

// The list is bounded, and so is what it costs the store.
func TestManyBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := ratelimit.Must(memstore.New(memstore.Config{}))
		defer m.Close()
		limits := ratelimit.Config{Store: shared{m}}
		s, other := newSite(t, admin.Config{}, limits), newSite(t, admin.Config{}, limits)
		for i := range 25 {
			s.want(s.post("key/block", form(fmt.Sprint("ip:192.0.2.", i), "for", "2h", "force", "1")), 303)
			s.want(other.post("key/block", form(fmt.Sprint("ip:192.0.2.", 100+i), "for", "1h", "force", "1")), 303)
		}
		time.Sleep(3 * time.Second)
		before := at(s.object("facts.json"), "operations", "peek").(float64)
		time.Sleep(time.Second)
		v := s.object("facts.json")
		if peeks := at(v, "operations", "peek").(float64) - before; peeks > 20 {
			t.Errorf("%v looks at the store", peeks)
		}
		same(t, v, map[string]any{"blocks.0.reason": "ann", "blocks.19.reason": "ann", "blocks.20.looked": false, "blocks.39.policy": "api", "blocks.40": nil})
		w := s.get("", asBrowser)
		checkPage(t, w)
		s.want(w, 200, `32 more: <a href="blocks">all blocks and locks</a>`, "40&#43;")
		s.want(s.get("blocks", asBrowser), 200, "see the page of the key", "10 more are not listed, for lack of room.")
	})
}

// Whatever others publish, the pages stay small, and each policy has keys on them.
func TestTheKeysAndBlocksOfManyReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := ratelimit.Must(memstore.New(memstore.Config{}))
		defer m.Close()
		s := newSite(t, admin.Config{}, ratelimit.Config{Store: shared{m}})
		for i := range 100 {
			var keys, blocks []string
			for j := range 40 {
				key := fmt.Sprintf(`{"policy":"api","key":"ip:10.0.%d.%d","requests":90,"denied":80,"until":"2000-01-02T00:00:00Z"}`, i, j)
				keys, blocks = append(keys, key), append(blocks, key)
			}
			keys = append(keys, `{"policy":"logins","key":"ip:192.0.2.1","requests":1}`)
			text := fmt.Sprintf(`{"format":1,"at":"2000-01-01T00:00:00Z","store":{"kind":"redis","state":"answers"},"keys":[%s],"blocks":[%s]}`, strings.Join(keys, ","), strings.Join(blocks, ","))
			if _, _, err := m.WriteValue(t.Context(), "replicas", store.Value{Name: fmt.Sprint("r", i), Text: text, Version: store.AnyVersion, Until: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		v := s.object("top.json")
		if at(v, "keys", 199) == nil || at(v, "keys", 200) != nil || at(v, "keys_left_out") != 3801.0 {
			t.Errorf("%d keys and %v more", len(at(v, "keys").([]any)), at(v, "keys_left_out"))
		}
		same(t, v, map[string]any{"keys.199.policy": "logins", "keys.199.requests": 100.0})
		v = s.object("blocks.json")
		if n := len(at(v, "blocks").([]any)); n > 200 || at(v, "blocks_left_out") != 3800.0 {
			t.Errorf("%d blocks and %v more", n, at(v, "blocks_left_out"))
		}
	})
}

// A key that is not shown can be unblocked all the same, and whatever a key has in it, the form names its bytes.
func TestUnblockFromTheList(t *testing.T) {
	for name, secret := range map[string][]byte{"shown": nil, "hidden": []byte("0123456789abcdef")} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, admin.Config{KeySecret: secret}, ratelimit.Config{})
			for _, key := range hostile {
				s.want(s.post("key/block", form(key, "for", "1h", "force", "1"), asBrowser), map[bool]int{true: 303, false: 200}[secret == nil])
			}
			time.Sleep(time.Second)
			w := s.get("blocks", asBrowser)
			if checkPage(t, w); secret != nil && strings.Contains(w.Body.String(), "canary") {
				t.Errorf("a key is shown in %s", w.Body)
			}
			unblocked := 0
			values := url.Values{}
			for _, e := range parsePage(t, w) {
				if e.name == "form" && e.attr["method"] == "post" {
					values = url.Values{}
				}
				if e.name == "input" && e.attr["type"] == "hidden" {
					values.Set(e.attr["name"], e.attr["value"])
				}
				if e.name == "button" && e.text == "Unblock" {
					s.want(s.post("key/unblock", values), 303)
					unblocked++
				}
			}
			if want := len(hostile) - 1; unblocked != want { // one is longer than a Top keeps
				t.Errorf("%s: %d keys can be unblocked, want %d", name, unblocked, want)
			}
			for _, key := range hostile {
				if b, err := s.limiter.Peek(t.Context(), api, key); err != nil || b.Blocked != (len(key) > keyname.MaxShort) {
					t.Errorf("%s: %q: blocked %t, %v", name, key, b.Blocked, err)
				}
			}
		})
	}
}
