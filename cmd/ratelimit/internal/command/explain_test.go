package command_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

const proxied = `version: 1
policies:
  - name: api
    key: {client_ip: {trusted_proxies: [10.0.0.0/8]}}
    limit: 60/1h burst 10
`

// The buckets are those of Redis, and an explanation leaves them as they are.
func TestExplain(t *testing.T) {
	server := redistest.Start(t)
	policies := file(t, "limits.yaml", proxied)
	at := []string{"-policies", policies, "-redis", "redis://" + server.Addr(), "-prefix", "shop", "-peer", "10.0.0.7"}
	l := program(t, server.Client(), redisstore.Config{Prefix: "shop"})
	take(t, l, "ip:192.0.2.1", 4)
	explained := func(status int, s setup, args ...string) (x explain.Explanation) {
		t.Helper()
		before := fmt.Sprint(server.Do("keys", "*"), server.Do("hgetall", "shop:{ip:192.0.2.1}:api"))
		r := s.run(t, append(append([]string{"explain", "-json"}, at...), args...)...)
		r.want(t, status, "buckets of the Redis at "+server.Addr())
		if err := json.Unmarshal([]byte(r.out), &x); err != nil {
			t.Fatalf("%v\n%s", err, r.out)
		}
		if after := fmt.Sprint(server.Do("keys", "*"), server.Do("hgetall", "shop:{ip:192.0.2.1}:api")); after != before {
			t.Errorf("Redis has %s, before %s", after, before)
		}
		return x
	}
	const line = "curl 'https://example.com/items/5' -H 'X-Forwarded-For: 192.0.2.1'"
	for name, args := range map[string][]string{
		"flags": {"-H", "X-Forwarded-For: 192.0.2.1", "https://example.com/items/5"},
		"path":  {"-H", "X-Forwarded-For: 192.0.2.1", "-H", "Host: example.com", "/items/5"},
		"curl":  {"-curl", line},
		"stdin": {"-"},
	} {
		x := explained(0, setup{stdin: line + "\n"}, args...)
		p := x.Limiters[0].Policies[0]
		if x.Host != "example.com" || x.Path != "/items/5" || p.Key != "ip:192.0.2.1" || p.Before.Remaining != 6 || p.After.Remaining != 5 {
			t.Errorf("%s: %+v\n%+v %+v", name, x, p, p.Before)
		}
	}
	take(t, l, "ip:192.0.2.1", 6)
	x := explained(1, setup{}, "-curl", line)
	if p := x.Limiters[0].Policies[0]; x.Status != 429 || p.Outcome != explain.Denied || x.Header.Get("Retry-After") != "60" {
		t.Errorf("%+v\n%+v", x, p)
	}
	if _, err := l.Block(t.Context(), ratelimit.Policy{Name: "api"}, "ip:192.0.2.1", 3600e9, ""); err != nil {
		t.Fatal(err)
	}
	run(t, append([]string{"explain", "-curl", line}, at...)...).want(t, 1, "429", "blocked")
}

// Flags of curl without effect are named, and hostile texts are escaped.
func TestExplainEscapes(t *testing.T) {
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: {header: X-Key}\n    limit: 1/1h\n")
	const hostile = "\x1b[31m\u202e"
	for _, args := range [][]string{
		{"-H", "X-Key: " + hostile, "/"},
		{"-H", "X-Key: 5", "-H", "Host: " + hostile, "/"},
		{"-H", "X-Key: 5", "-X", hostile, "/"},
		{"-H", "X-Key: 5", "/" + hostile},
		{"-H", hostile + ": 5", "/"},
		{"-curl", "curl --nothing" + hostile + " https://example.com/" + hostile},
	} {
		for _, as := range []string{"-json=true", "-json=false"} {
			r := run(t, append([]string{"explain", as, "-policies", policies}, args...)...)
			if strings.ContainsAny(r.out+r.err, "\x1b\u202e") {
				t.Errorf("%q: not escaped:\n%s%s", args, r.out, r.err)
			}
		}
	}
	run(t, "explain", "-policies", policies, "-curl", "curl --no-such-flag https://example.com/ -H 'X-Key: 5'").want(t, 0, "has no effect: ")
}

// The address of the request, or -route, says which policies of routes it meets.
func TestExplainByRoute(t *testing.T) {
	const routes = "version: 1\n%spolicies:\n" +
		"  - {name: api, key: remote_ip, limit: 60/1h}\n" +
		"  - {name: items, on: [\"GET /items/{id}\"], key: route, limit: 60/1h}\n" +
		"  - {name: other, on: [/other], key: route, limit: 60/1h}\n"
	for router, others := range map[string]string{"": "route:/other", "router: chi\n": "route:GET /other"} {
		policies := file(t, "limits.yaml", fmt.Sprintf(routes, router))
		for _, tt := range []struct {
			args []string
			keys string
		}{
			{[]string{"/items/5"}, "ip:192.0.2.1 route:GET /items/{id}"},
			{[]string{"/other"}, "ip:192.0.2.1 " + others},
			{[]string{"/none"}, "ip:192.0.2.1"},
			{[]string{"//items//5"}, "ip:192.0.2.1"},
			{[]string{"-route", "GET /items/{id}", "/prefix/items/5"}, "ip:192.0.2.1 route:GET /items/{id}"},
		} {
			var x explain.Explanation
			r := run(t, append([]string{"explain", "-json", "-policies", policies}, tt.args...)...)
			r.want(t, 0, "all buckets are full")
			if err := json.Unmarshal([]byte(r.out), &x); err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, l := range x.Limiters {
				for _, p := range l.Policies {
					keys = append(keys, p.Key)
				}
			}
			if got := strings.Join(keys, " "); got != tt.keys {
				t.Errorf("%s%s: keys %q, want %q", router, tt.args, got, tt.keys)
			}
		}
	}
}
