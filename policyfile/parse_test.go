package policyfile_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// registry has a name of each kind.
var registry = policyfile.Registry{
	Keys:    map[string]ratelimit.KeyFunc{"members": func(*http.Request) (string, error) { return "member:5", nil }},
	Limits:  map[string]func(*http.Request) ratelimit.Limit{"tier": func(*http.Request) ratelimit.Limit { return ratelimit.PerMinute(7) }},
	Costs:   map[string]func(*http.Request) int64{"pages": func(*http.Request) int64 { return 3 }},
	Settles: map[string]func(*http.Request, ratelimit.Response) int64{"bytes": func(*http.Request, ratelimit.Response) int64 { return 9 }},
}

// policies returns a file with one policy that has these fields.
func policies(fields ...string) string {
	return "version: 1\npolicies:\n  - name: a\n    " + strings.Join(fields, "\n    ") + "\n"
}

const whole = `
version: 1
policies:
  - name: api
    key: {first_of: [members, {client_ip: {trusted_proxies: [10.0.0.0/8, 'fd00::/8']}}]}
    limit: 60/1m burst 10
    limit_func: tier
    cost: pages
    max_wait: 500ms
    settle: bytes
    optional: true
    fail_closed: true
    shadow: true
    hidden: true
  - name: login
    on: [POST /login, 'POST /tokens/{id}']
    key: remote_ip
    limit: 1/15m burst 5
    lock_for: 15m
    settle: failed_logins
    optional: false
routes:
  - GET /items/{id}
`

const wholeJSON = `{
	"version": 1,
	"policies": [
		{
			"name": "api", "key": {"first_of": ["members", {"client_ip": {"trusted_proxies": ["10.0.0.0/8", "fd00::/8"]}}]},
			"limit": "60/1m burst 10", "limit_func": "tier", "cost": "pages", "max_wait": "500ms", "settle": "bytes",
			"optional": true, "fail_closed": true, "shadow": true, "hidden": true
		},
		{
			"name": "login", "on": ["POST /login", "POST /tokens/{id}"], "key": "remote_ip", "limit": "1/15m burst 5",
			"lock_for": "15m", "settle": "failed_logins", "optional": false
		}
	],
	"routes": ["GET /items/{id}"]
}`

func TestParseReadsEveryField(t *testing.T) {
	for name, text := range map[string]string{"limits.yaml": whole, "limits.json": wholeJSON, "limits.yml": wholeJSON} {
		t.Run(name, func(t *testing.T) {
			f, err := policyfile.Parse(name, []byte(text), registry)
			if err != nil {
				t.Fatal(err)
			}
			all := f.Policies()
			if len(all) != 2 || len(f.Everywhere()) != 1 || f.Everywhere()[0].Name != "api" || len(f.Named("login")) != 1 {
				t.Fatalf("policies %v", all)
			}
			r, _ := http.NewRequest("GET", "/", nil)
			api, login := all[0], all[1]
			key, _ := api.Key(r)
			if key != "member:5" || api.Limit != ratelimit.PerMinute(60).WithBurst(10) || api.LimitFunc(r) != ratelimit.PerMinute(7) || api.Cost(r) != 3 ||
				api.MaxWait != 500*time.Millisecond || api.LockFor != 0 || api.Settle(r, ratelimit.Response{}) != 9 || !api.Optional || !api.FailClosed || !api.Shadow || !api.Hidden {
				t.Errorf("%+v, key %q", api, key)
			}
			r.RemoteAddr = "192.0.2.1:9"
			key, _ = login.Key(r)
			if key != "ip:192.0.2.1" || login.Limit != ratelimit.Every(15*time.Minute).WithBurst(5) || login.LimitFunc != nil || login.Cost != nil || login.MaxWait != 0 ||
				login.LockFor != 15*time.Minute || login.Settle(r, ratelimit.Response{Written: true, Status: 200}) != 0 || login.Optional || login.FailClosed || login.Shadow || login.Hidden {
				t.Errorf("%+v, key %q", login, key)
			}
			got := fmt.Sprintf("%q", f.Mounts()[1].On)
			if m := f.Mounts()[0]; got != `["POST /login" "POST /tokens/{id}"]` || m.On != nil || m.Unknown != nil || m.LimitFunc != "tier" || m.Cost != "pages" || m.Settle != "bytes" || m.Line != 4 && m.Line != 5 ||
				m.Key != `{first_of: [members, {client_ip: {trusted_proxies: [10.0.0.0/8, "fd00::/8"]}}]}` {
				t.Errorf("on %s, mount %+v", got, m)
			}
			ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: all})).Close()
		})
	}
}

func TestParseReadsQuotas(t *testing.T) {
	berlin := ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin")
	for text, want := range map[string]ratelimit.Limit{
		"100000 per month Europe/Berlin":   berlin,
		"'100000 per month Europe/Berlin'": berlin,
		"100000   per month":               {},
		"5 per hour":                       ratelimit.Quota(5, ratelimit.Hour),
	} {
		f, err := policyfile.Parse("f.yaml", []byte(policies("key: remote_ip", "limit: "+text)), registry)
		if (err == nil) != (want != ratelimit.Limit{}) || err == nil && f.Policies()[0].Limit != want {
			t.Errorf("%s: %+v, %v, want %v", text, f, err, want)
		}
	}
	f, err := policyfile.Parse("f.json", []byte(`{"version": 1, "policies": [{"name": "plan", "key": "remote_ip", "limit": "100000 per month Europe/Berlin"}]}`), registry)
	if err != nil || f.Policies()[0].Limit != berlin {
		t.Errorf("JSON: %+v, %v", f, err)
	}
}

// Each form of a key makes the key that the function of that name makes.
func TestParseReadsKeys(t *testing.T) {
	r, _ := http.NewRequest("GET", "/x", nil)
	r.RemoteAddr, r.Pattern = "10.0.0.1:9", "GET /{x}"
	r.Header = http.Header{"X-Forwarded-For": {"203.0.113.9, 198.51.100.1"}, "Forwarded": {"for=203.0.113.7"}, "X-Real-Ip": {"203.0.113.8"}, "X-Api-Key": {"k"}}
	apiKey, _ := ratelimit.Header("X-Api-Key")(r)
	for key, want := range map[string]string{
		"remote_ip":                    "ip:10.0.0.1",
		"'remote_ip'":                  "ip:10.0.0.1",
		"members":                      "member:5",
		"route":                        "route:GET /{x}",
		"{static: all}":                "static:all",
		"{header: x-api-key}":          apiKey,
		"{join: [route, {static: x}]}": "join:route:GET /{x}|static:x",
		"{first_of: [{header: X-None}, remote_ip]}":        "ip:10.0.0.1",
		"{client_ip: {proxy_count: 1}}":                    "ip:198.51.100.1",
		"{client_ip: {trusted_proxies: [10.0.0.0/8]}}":     "ip:198.51.100.1",
		"{client_ip: {edge_header: X-Real-IP}}":            "ip:203.0.113.8",
		"{client_ip: {ipv6_bits: 48}}":                     "ip:10.0.0.1",
		"{client_ip: {trust_unix: true}}":                  "ip:10.0.0.1",
		"{client_ip: {header: Forwarded, proxy_count: 1}}": "ip:203.0.113.7",
	} {
		f, err := policyfile.Parse("f.yaml", []byte(policies("key: "+key, "limit: 1/s")), registry)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if got, err := f.Policies()[0].Key(r); got != want || err != nil {
			t.Errorf("%s: key %q, error %v, want %q", key, got, err, want)
		}
	}
}

// Every fault is reported at its line, with what would be right, and all at once.
func TestParseReportsEveryFault(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", `1:1: is empty`},
		{"a text", "policies", `1:1: must have fields: version, policies`},
		{"a list", "- a", `1:1: must have fields`},
		{"no version", "policies:\n- {name: a, key: remote_ip, limit: 1/s}", `1:1: version: must be set, to 1`},
		{"another version", "version: 2\npolicies:\n- {name: a, key: remote_ip, limit: 1/s}", `1:10: version: "2": must be 1`},
		{"no policies", "version: 1", `1:1: policies: must be set: a list`},
		{"an empty list", "version: 1\npolicies: []", `2:11: policies: must have a policy`},
		{"no value", "version: 1\npolicies:", `2:10: policies: must be a list of policies`},
		{"no list", "version: 1\npolicies:\n  a: {key: remote_ip, limit: 1/s}", `3:3: policies: must be a list of policies, each with a name`},
		{"a policy that is a text", "version: 1\npolicies: [api]", `2:12: policies[0]: must have fields: name, on, key`},
		{"an unknown field of the file", "version: 1\npolices: []\nremove: []\npolicies:\n- {name: a, key: remote_ip, limit: 1/s}", `2:1: polices: unknown field: did you mean policies?
3:1: remove: unknown field: did you mean removed?`},
		{"unknown fields of a policy", policies("kye: x", "key: remote_ip", "limit: 1/s", "failclosed: true", "max-wait: 1s", "zzzzzz: 1"), `4:5: policies[0].kye: unknown field: did you mean key? Known: cost, fail_closed
7:5: policies[0].failclosed: unknown field: did you mean fail_closed?
8:5: policies[0].max-wait: unknown field: did you mean max_wait?
9:5: policies[0].zzzzzz: unknown field: known: cost,`},
		{"fields that are missing", "version: 1\npolicies:\n- {}\n- name: b\n", `3:3: policies[0].name: must be set, to 1 to 63 ASCII letters
3:3: policies[0].key: must be set, such as remote_ip
3:3: policies[0].limit: must be set, such as 60/1m burst 10
4:3: policies[1].key: must be set
4:3: policies[1].limit: must be set`},
		{"fields without a value", policies("key:", "limit: ~", "max_wait: null", "shadow:"), `4:9: policies[0].key: has no value: set it or remove the field
5:12: policies[0].limit: has no value
6:15: policies[0].max_wait: has no value
7:12: policies[0].shadow: has no value`},
		{"a name", "version: 1\npolicies:\n- {name: a b, key: remote_ip, limit: 1/s}\n- {name: '', key: remote_ip, limit: 1/s}", `3:10: policies[0].name: "a b": must be 1 to 63 ASCII letters
4:10: policies[1].name: "": must be 1 to 63 ASCII letters`},
		{"no space after a colon", "version: 1\npolicies:\n- name:api\n- limit:\"5/s\"", `3:3: policies[0]: "name:api": must have a space after the colon, as in name: api
4:3: policies[1]: "limit:"5/s"": must have a space after the colon, as in limit: "5/s"`},
		{"methods in small letters", "version: 1\npolicies:\n- {name: a, key: route, limit: 1/s, on: [get /a, POST /b, 'Get /c']}\nroutes: [put /x]", `3:42: policies[0].on[0]: "get /a": the method get is not in capitals: must be like "GET /items/{id}"
3:59: policies[0].on[2]: "Get /c": the method Get is not in capitals: must be like "GET /items/{id}"
4:10: routes[0]: "put /x": the method put is not in capitals: must be like "GET /items/{id}"`},
		{"a limit with two faults", "version: 1\npolicies:\n- {name: a, key: route, limit: 4503599627370497/s}", `3:32: policies[0].limit: "4503599627370497/s": Rate 4503599627370497: must be from 1 to 4503599627370496 tokens; Burst 4503599627370497: must be from 1 to`},
		{"a duration that is too long", "version: 1\npolicies:\n- {name: a, key: route, limit: 1/999999999h}", `3:32: policies[0].limit: "1/999999999h": duration "999999999h": must be at most 106751 days`},
		{"numbers that are too large", "version: 1\npolicies:\n" +
			"- {name: a, limit: 99999999999999999999/1s, key: {client_ip: {proxy_count: 99999999999999999999}}}\n" +
			"- {name: b, limit: 1/1s burst 99999999999999999999, key: {client_ip: {proxy_count: 1, ipv6_bits: -99999999999999999999}}}", `3:20: policies[0].limit: "99999999999999999999/1s": rate "99999999999999999999": must be from 1 to 4503599627370496 tokens
3:76: policies[0].key.client_ip.proxy_count: 2147483647: must be from 0 to 64
4:20: policies[1].limit: "1/1s burst 99999999999999999999": burst "99999999999999999999": must be from 1 to 4503599627370496 tokens
4:98: policies[1].key.client_ip.ipv6_bits: -2147483648: must be from 32 to 128`},
		{"a negative number", "version: 1\npolicies: [{name: a, limit: 1/s, key: {client_ip: {proxy_count: -1}}}]", `2:65: policies[0].key.client_ip.proxy_count: -1: must be from 0 to 64`},
		{"a repeated name", "version: 1\npolicies:\n- {name: a, key: remote_ip, limit: 1/s}\n- {name: b, key: remote_ip, limit: 1/s}\n- {key: route, limit: 1/s, name: a}", `5:34: policies[2].name: "a": policies[0] on line 3 has it already: must differ`},
		{"a repeated field", policies("key: remote_ip", "limit: 1/s", "key: route"), `6:5: policies[0].key: is repeated: line 4 has the field already: must stand once`},
		{"limits", "version: 1\npolicies:\n- {name: a, key: route, limit: 0/1m}\n- {name: b, key: route, limit: 60}\n- {name: c, key: route, limit: 60/fortnight}\n- {name: d, key: route, limit: 5/1s burst x}\n- {name: e, key: route, limit: [1/s]}", `3:32: policies[0].limit: "0/1m": rate "0": must be a whole number above 0
4:32: policies[1].limit: "60": must be like "60/1m", "60/1m burst 10", "1000 per month" or "3 at once"
5:32: policies[2].limit: "60/fortnight": duration "fortnight": must be like
6:32: policies[3].limit: "5/1s burst x": burst "x": must be a whole number above 0
7:32: policies[4].limit: must be a text, not a list or a mapping`},
		{"quotas", "version: 1\npolicies:\n- {name: a, key: route, limit: 5 per fortnight}\n- {name: b, key: route, limit: 5 per month Europe/Nowhere}\n- {name: c, key: route, limit: 4503599627370497 per day}\n- {name: d, key: route, limit: 5 per day burst 3}\n- {name: e, key: route, limit: 0 per week}\n- {name: f, key: route, limit: 5/1m Europe/Berlin}", `3:32: policies[0].limit: "5 per fortnight": period "fortnight": must be hour, day, week or month; a rate is like "60/1m"
4:32: policies[1].limit: "5 per month Europe/Nowhere": Zone "Europe/Nowhere": must be a time zone that this host knows
5:32: policies[2].limit: "4503599627370497 per day": Rate 4503599627370497: must be from 1 to 4503599627370496 tokens
6:32: policies[3].limit: "5 per day burst 3": "burst 3": must be left out of a quota
7:32: policies[4].limit: "0 per week": rate "0": must be a whole number above 0
8:32: policies[5].limit: "5/1m Europe/Berlin": duration "1m Europe/Berlin": must be like`},
		{"concurrency limits", "version: 1\npolicies:\n- {name: a, key: route, limit: 0 at once}\n- {name: b, key: route, limit: 3 concurrent}\n- {name: c, key: route, limit: 3 at once burst 5}\n- {name: d, key: route, limit: 1000001 at once}\n- {name: e, key: route, limit: 3 at once, cost: pages, settle: bytes, lock_for: 1m}\n- {name: f, key: route, limit: 3 at once, max_wait: 1s, shadow: true, limit_func: tier}", `3:32: policies[0].limit: "0 at once": number "0": must be a whole number above 0
4:32: policies[1].limit: "3 concurrent": must be like "60/1m", "60/1m burst 10", "1000 per month" or "3 at once"
5:32: policies[2].limit: "3 at once burst 5": must be like
6:32: policies[3].limit: "1000001 at once": Rate 1000001: must be from 1 to 1000000 slots
7:49: policies[4].cost: must not be set beside a concurrency limit, because each request takes one slot: use a policy with a rate for it
7:64: policies[4].settle: must not be set beside a concurrency limit
7:81: policies[4].lock_for: must not be set beside a concurrency limit`},
		{"durations", policies("key: route", "limit: 1/s", "max_wait: soon", "lock_for: 5"), `6:15: policies[0].max_wait: "soon": must be a duration, such as 500ms
7:15: policies[0].lock_for: "5": must be a duration`},
		{"durations out of bounds", "version: 1\npolicies:\n- {name: a, key: route, limit: 1/s, max_wait: -1s}\n- {name: b, key: route, limit: 1/s, lock_for: 1ns}\n- {name: c, key: route, limit: 1/s, lock_for: 1m, max_wait: 1m}", `3:47: policies[0].max_wait: -1s: must not be negative
4:47: policies[1].lock_for: 1ns: must be from 1µs to
5:47: policies[2].lock_for: 1m0s: must be 0 where requests wait, because each of them would lock the bucket: set max_wait to 0`},
		{"flags", policies("key: route", "limit: 1/s", "shadow: yes", "optional: 1", "hidden: {}"), `6:13: policies[0].shadow: "yes": must be true or false
7:15: policies[0].optional: "1": must be true or false
8:13: policies[0].hidden: must be a text`},
		{"names that the Registry lacks", policies("key: membres", "limit: 1/s", "limit_func: teir", "cost: 5", "settle: failed_login"), `4:10: policies[0].key: "membres": Registry.Keys has no such name, and it is not built in: did you mean members? Known: client_ip, first_of, header, join, members, remote_ip, route, static
6:17: policies[0].limit_func: "teir": Registry.Limits has no such name: did you mean tier?
7:11: policies[0].cost: "5": Registry.Costs has no such name: known: pages
8:13: policies[0].settle: "failed_login": Registry.Settles has no such name: did you mean failed_logins? Known: bytes, failed_logins`},
		{"keys", "version: 1\npolicies:\n- {name: a, limit: 1/s, key: {first_off: [route]}}\n- {name: b, limit: 1/s, key: {first_of: []}}\n- {name: c, limit: 1/s, key: {join: [route, {header: Host}, {static: ''}, nobody]}}\n- {name: d, limit: 1/s, key: [route]}\n- {name: e, limit: 1/s, key: {}}\n- {name: f, limit: 1/s, key: {route: x}}\n- {name: g, limit: 1/s, key: header}\n- {name: h, limit: 1/s, key: {join: route}}", `3:31: policies[0].key.first_off: unknown key: did you mean first_of?
4:41: policies[1].key.first_of: must have a key
5:54: policies[2].key.join[1].header: "Host": must be the name of a request header, and not Host
5:70: policies[2].key.join[2].static: must not be empty
5:75: policies[2].key.join[3]: "nobody": Registry.Keys has no such name
6:30: policies[3].key: is a list: must be {first_of: […]} or {join: […]}
7:30: policies[4].key: has 0 fields: must have one of client_ip, header
8:31: policies[5].key.route: has no value: must be key: route
9:30: policies[6].key: header: must have a value, such as {header: X-Api-Key}
10:37: policies[7].key.join: must be a list of keys`},
		{"addresses of clients", "version: 1\npolicies:\n" +
			"- {name: a, limit: 1/s, key: client_ip}\n" +
			"- {name: b, limit: 1/s, key: {client_ip: {}}}\n" +
			"- {name: c, limit: 1/s, key: {client_ip: {trusted_proxies: [10.0.0.1, x, '::ffff:10.0.0.0/104']}}}\n" +
			"- {name: d, limit: 1/s, key: {client_ip: {trusted_proxies: [10.0.0.0/8], proxy_count: 1}}}\n" +
			"- {name: e, limit: 1/s, key: {client_ip: {header: X-Real-IP}}}\n" +
			"- {name: f, limit: 1/s, key: {client_ip: {proxy_count: two}}}\n" +
			"- {name: g, limit: 1/s, key: {client_ip: {trusted_proxy: [10.0.0.0/8]}}}\n" +
			"- {name: h, limit: 1/s, key: {client_ip: {ipv6_bits: 8}}}\n" +
			"- {name: i, limit: 1/s, key: {client_ip: {trusted_proxies: ['::ffff:10.0.0.0/104']}}}\n" +
			"- {name: j, limit: 1/s, key: {client_ip: {header: Forwarded}}}\n", `3:30: policies[0].key: client_ip: must say which proxies to trust
4:42: policies[1].key.client_ip: must say which proxies to trust
5:61: policies[2].key.client_ip.trusted_proxies[0]: "10.0.0.1": must be a network, such as 10.0.0.1/32 for this one address
5:71: policies[2].key.client_ip.trusted_proxies[1]: "x": must be a network, such as 10.0.0.0/8
6:87: policies[3].key.client_ip.proxy_count: must not be set together with trusted_proxies
7:51: policies[4].key.client_ip.header: "X-Real-IP": must be "X-Forwarded-For" or "Forwarded"; for a single address use edge_header
8:56: policies[5].key.client_ip.proxy_count: "two": must be a whole number
9:43: policies[6].key.client_ip.trusted_proxy: unknown field: did you mean trusted_proxies?
10:54: policies[7].key.client_ip.ipv6_bits: 8: must be from 32 to 128
11:60: policies[8].key.client_ip.trusted_proxies: ::ffff:10.0.0.0/104: must be written as IPv4
12:51: policies[9].key.client_ip.header: "Forwarded": must come with trusted_proxies, trust_unix or proxy_count`},
		{"patterns", "version: 1\nroutes: [x, 'GET /{a', GET /a/]\npolicies:\n- {name: a, key: route, limit: 1/s, on: []}\n- {name: b, key: route, limit: 1/s, on: [GET /x, GET /x]}\n- {name: c, key: route, limit: 1/s, on: ['GET /y/{z}', 'GET /{y}/z']}\n- {name: d, key: route, limit: 1/s, on: GET /x}", `2:10: routes[0]: "x": host/path missing /: must be like "GET /items/{id}" or "/items/"
2:13: routes[1]: "GET /{a": bad wildcard segment
4:41: policies[0].on: must have a pattern; remove the field for a policy of all routes
5:50: policies[1].on[1]: "GET /x": is repeated
6:56: policies[2].on[1]: "GET /{y}/z": conflicts with "GET /y/{z}" of line 6
7:41: policies[3].on: must be a list of patterns, such as`},
		{"patterns of chi", "version: 1\nrouter: chi\nroutes: [x, 'GET /{a', FETCH /a, 'GET /{a}/{a}']\npolicies:\n- {name: a, key: route, limit: 1/s}", `3:10: routes[0]: "x":
3:13: routes[1]: "GET /{a":
3:24: routes[2]: "FETCH /a": 
3:34: routes[3]: "GET /{a}/{a}":`},
		{"another router", "version: 1\nrouter: gin\npolicies:\n- {name: a, key: route, limit: 1/s}", `2:9: router: "gin": must be servemux or chi`},
		{"removed", "version: 1\npolicies:\n- {name: a, key: route, limit: 1/s}\nremoved:\n- b\n- a\n- [c]\n", `6:3: removed[1]: "a": is in policies[0] on line 3
7:3: removed[2]: must be a text`},
		{"no space after a colon in braces", "version: 1\npolicies:\n- {name: a, key:remote_ip, limit:1/s}", `3:13: policies[0]: "key:remote_ip": must have a space after the colon, as in key: remote_ip
3:28: policies[0]: "limit:1/s": must have a space after the colon, as in limit: 1/s`},
		{"quotes around a field", "version: 1\npolicies:\n- 'name:api'\n- {\"key:route\": 1}", `3:3: policies[0]: must have fields: name
4:3: policies[1].name: must be set
4:3: policies[1].key: must be set
4:3: policies[1].limit: must be set
4:4: policies[1].key:route: unknown field: known: cost`},
		{"too many patterns", "version: 1\npolicies: [{name: a, key: route, limit: 1/s}]\nroutes:\n" + patterns(2001), `2004:3: routes[2000]: is one pattern too many: a file must have at most 2000`},
		{"a space too few", "version: 1\npolicies:\n  - name: a\n    key: remote_ip\n   limit: 1/s\n", `5:4: while parsing a block collection: did not find expected '-' indicator: must be YAML`},
		{"parts of YAML that are refused", "version: &v 1\npolicies:\n- name: !!str a\n  key: {first_of: [&k route, *k]}\n  limit: ! 1/s\n  <<: {hidden: true}\n- &p {name: b}\n- *p\n", `1:10: version: is an anchor: write the value
3:9: policies[0].name: is a tag: remove it
4:20: policies[0].key.first_of[0]: is an anchor: write the value
4:30: policies[0].key.first_of[1]: is an alias: write the value that it stands for
5:10: policies[0].limit: is a tag: remove it
6:3: policies[0].<<: unknown field
7:3: policies[1]: is an anchor
8:3: policies[2]: is an alias`},
		{"names that are refused", "version: 1\n&a policies: []\n[b]: c\n? {}\n: d\n", `1:1: policies: must be set
2:1: is an anchor
3:1: is a name that is a list or a mapping: must be a text
4:3: is a name that is a list or a mapping: must be a text`},
		{"no end", "version: 1\npolicies: [", `2:12: while parsing a flow node: did not find expected node content: must be YAML`},
		{"two escapes for a character", `{"version": "\ud83d\ude00"}`, `1:16: while scanning a quoted scalar: found invalid Unicode character escape code: must be YAML`},
		{"two documents", "version: 1\n---\npolicies: []\n", `2:1: begins another document: must be one document`},
		{"no bracket at the end", "version: 1\npolicies: [{name: a}\n", `3:1: while parsing a flow sequence: did not find expected ',' or ']': must be YAML`},
		{"a pattern with braces", "version: 1\nroutes: [GET /{a}]\n", `2:15: while parsing a flow sequence: did not find expected ',' or ']': must be YAML with at most 20 levels; check indentation and brackets, and put texts with special characters in quotes`},
		{"21 levels", "version: 1\npolicies: " + strings.Repeat("[", 21), `2:31: while increasing flow level: exceeded max depth of 20: must be YAML with at most 20 levels`},
		{"21 levels of lists", strings.Repeat("- ", 30) + "a", `1:41: while increasing indent level: exceeded max depth of 20: must be YAML with at most 20 levels`},
		{"no UTF-8", "version: 1\n# \xff\n", `2:3: invalid leading UTF-8 octet (value: 255): must be UTF-8`},
		{"a control character", "version: 1\nr: é\x1b[2J\n", `2:5: control characters are not allowed (value: 27): must be UTF-8 without control characters`},
		{"texts for a terminal", "version: 1\n\"a\\u001b[2J\": 1\npolicies:\n- {name: a, key: \"\\u202e\\u001b[2J\", limit: \"\\u001b]0;x\\u0007\"}", `2:1: a\x1b[2J: unknown field
4:18: policies[0].key: "\u202e\x1b[2J": Registry.Keys
4:44: policies[0].limit: "\x1b]0;x\a": must be like`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := policyfile.Parse("f.yaml", []byte(tt.text), registry)
			var faults policyfile.Faults
			if f != nil || !errors.As(err, &faults) {
				t.Fatalf("file %v, error %v", f, err)
			}
			got, want := strings.Split(err.Error(), "\n"), strings.Split(tt.want, "\n")
			for i, line := range got {
				if i >= len(want) || !strings.HasPrefix(line, "f.yaml:"+strings.TrimRight(want[i], " ")) {
					t.Errorf("fault %d: %s", i, line)
				}
				if !remedy.MatchString(line) {
					t.Errorf("no remedy: %s", line)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d faults, want %d:\n%s", len(got), len(want), err)
			}
		})
	}
}

// patterns returns n items of a list.
func patterns(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "- /a%d\n", i)
	}
	return text.String()
}

// remedy is how a fault says what would be right.
var remedy = regexp.MustCompile(`must |did you mean|known: |set it or remove|write |save the file|remove it|remove the field|use `)

func TestParseReportsFaultsOfJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"version\": 1,\n\"policies\": [{\"name\": \"a\", \"key\": \"route\", \"limit\": \"1/s\"},]\n}": `f.json:3:60: invalid character ']' looking for beginning of value: must be JSON, because the name of the file ends in .json`,
		"version: 1\n":               "f.json:1:1: invalid character 'v' looking for beginning of value",
		"{\"version\": 1":            "f.json:1:1",
		"{\"é\" 1}":                  "f.json:1:6: invalid character '1' after object key",
		"{\"version\": 1, \"a\": 1}": "f.json:1:1: policies: must be set",
		"\ufeff{\n\"é\" 1}":          "f.json:2:5: invalid character '1' after object key",
		"\ufeff{\n\"version\":2}":    "f.json:1:1: policies: must be set: a list of policies\nf.json:2:11: version: \"2\": must be 1",
	} {
		_, err := policyfile.Parse("f.json", []byte(text), registry)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestParseReportsAtMost50Faults(t *testing.T) {
	for _, name := range []string{"a b", "a b%d", "a"} {
		text := "version: 2\npolicies:\n"
		for i := range 100 {
			text += strings.ReplaceAll("- {name: "+name+", key: route, limit: 1/s}\n", "%d", strconv.Itoa(i))
		}
		_, err := policyfile.Parse("f.yaml", []byte(text), registry)
		if faults := err.(policyfile.Faults); len(faults) != 50 || faults[49].Line > 53 {
			t.Errorf("%s: %d faults: %v", name, len(faults), faults[len(faults)-1])
		}
	}
}

// A Registry that a file could not name is a fault, too.
func TestParseChecksTheRegistry(t *testing.T) {
	_, err := policyfile.Parse("f.yaml", []byte(policies("key: route", "limit: 1/s")), policyfile.Registry{
		Keys:    map[string]ratelimit.KeyFunc{"route": ratelimit.RemoteIP(), "x": nil},
		Settles: map[string]func(*http.Request, ratelimit.Response) int64{"failed_logins": ratelimit.FailedLogins},
		Costs:   map[string]func(*http.Request) int64{"": func(*http.Request) int64 { return 1 }},
	})
	for _, want := range []string{`Registry.Keys["route"]: is built in: the program must`, `Registry.Keys["x"]: is nil: the program must`, `Registry.Settles["failed_logins"]: is built in`, `Registry.Costs[""]: has no name`} {
		if err == nil || !strings.Contains(err.Error(), "f.yaml:1:1: "+want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// Names that a tool cannot know are accepted, and the policies that use them are in Mounts alone.
func TestUnknownNames(t *testing.T) {
	const text = `
version: 1
policies:
  - {name: a, key: {first_of: [members, remote_ip]}, limit: 1/s}
  - {name: b, key: remote_ip, limit_func: tier, cost: pages, on: [/b]}
  - {name: c, key: remote_ip, limit: 2/s}
`
	f, err := policyfile.Parse("f.yaml", []byte(text), policyfile.Registry{Unknown: []string{"members", "tier", "pages", "unused"}})
	if err != nil {
		t.Fatal(err)
	}
	if all := f.Policies(); len(all) != 1 || all[0].Name != "c" || len(f.Everywhere()) != 1 {
		t.Errorf("policies %v", all)
	}
	mounts := f.Mounts()
	if len(mounts) != 3 || fmt.Sprint(mounts[0].Unknown, mounts[1].Unknown, mounts[2].Unknown) != "[members] [tier pages] []" ||
		mounts[0].Policy.Key != nil || mounts[0].Policy.Limit != ratelimit.PerSecond(1) || mounts[1].LimitFunc != "tier" || mounts[1].Policy.LimitFunc != nil || mounts[1].Policy.Limit != (ratelimit.Limit{}) {
		t.Errorf("mounts %+v", mounts)
	}
	if _, err := policyfile.Parse("f.yaml", []byte(text), policyfile.Registry{Unknown: []string{"tier", "pages"}}); err == nil || !strings.Contains(err.Error(), `f.yaml:4:32: policies[0].key.first_of[0]: "members"`) {
		t.Errorf("error %v", err)
	}
}

func TestNamedPanics(t *testing.T) {
	f, err := policyfile.Parse("f.yaml", []byte(policies("key: route", "limit: 1/s")), registry)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if got := fmt.Sprint(recover()); got != `policyfile: Named: f.yaml has no policy "b"` {
			t.Error(got)
		}
	}()
	f.Named("a", "b")
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if _, err := policyfile.Load(path, registry); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	write(t, path, whole)
	if f, err := policyfile.Load(path, registry); err != nil || len(f.Policies()) != 2 {
		t.Errorf("file %v, error %v", f, err)
	}
	write(t, path, strings.Repeat("# much too long\n", 1<<17))
	if _, err := policyfile.Load(path, registry); err == nil || !strings.Contains(err.Error(), "limits.yaml:1:1: has more than 1 MiB") {
		t.Errorf("error %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The check of policies is ratelimit.New's. Each field that it can name has a place in a file.
func TestFieldsOfTheCheck(t *testing.T) {
	source, err := os.ReadFile("../policy.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "\nfunc compile(")
	body, _, _ = strings.Cut(body, "\n}\n")
	fields := regexp.MustCompile("wrong\\(\"(\\w+)").FindAllStringSubmatch(body, -1)
	if len(fields) < 7 {
		t.Errorf("only %d faults found in compile", len(fields))
	}
	for _, field := range fields {
		if policyfile.FieldOf(field[1]) == "" {
			t.Errorf("no field of a file for %s", field[1])
		}
	}
}

// A tool tells from Lacks that a name may be one of the program's.
func TestLacks(t *testing.T) {
	text := "version: 1\npolicies:\n  - name: a\n    key: tenant\n    limit_func: tier\n    limit: 0/1s\n"
	_, err := policyfile.Parse("limits.yaml", []byte(text), policyfile.Registry{})
	var faults policyfile.Faults
	if !errors.As(err, &faults) || len(faults) != 3 || faults[0].Lacks != "tenant" || faults[1].Lacks != "tier" || faults[2].Lacks != "" {
		t.Errorf("%+v", faults)
	}
}
