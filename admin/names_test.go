package admin_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// A key has its name beside it wherever it is shown, and in the log.
func TestNamesOfKeys(t *testing.T) {
	for name, secret := range map[string][]byte{"shown": nil, "hidden": []byte("0123456789abcdef")} {
		synctest.Test(t, func(t *testing.T) {
			names := ratelimit.Must(observe.NewNames(func(_ context.Context, policy, key string) (string, error) {
				if policy == "api" && key == "ip:198.51.100.7" {
					return "Shop & <b>\u202eSons", nil
				}
				return "", nil
			}, observe.NamesConfig{}))
			s := newSite(t, admin.Config{Names: names, KeySecret: secret, Overrides: withOverrides}, ratelimit.Config{})
			s.use("198.51.100.7", 7)
			block := form("ip:198.51.100.7", "for", "1h")
			const shown = `Shop &amp; &lt;b&gt;\u202eSons`
			for range 2 { // the first one asks for the names
				s.post("key/block", block, asBrowser)
				s.get("")
				time.Sleep(time.Second)
			}
			for _, path := range []string{"", "top?policy=api", "blocks", "key"} {
				w := s.get(path, asBrowser)
				if path == "key" {
					w = s.post("key", form("ip:198.51.100.7"), asBrowser)
				}
				checkPage(t, w)
				s.want(w, 200, shown)
				if secret != nil && strings.Contains(w.Body.String(), "198.51.100.7") {
					t.Errorf("%s: %q shows the key", name, path)
				}
			}
			s.want(s.get("blocks.json"), 200, `"name": "Shop \u0026 \u003cb\u003e\\u202eSons"`)
			if !strings.Contains(s.log.String(), `name="Shop & <b>\\u202eSons"`) {
				t.Errorf("%s: log: %s", name, s.log.String())
			}
		})
	}
}
