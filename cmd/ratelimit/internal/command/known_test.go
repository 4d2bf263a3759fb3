package command_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// publish publishes a replica. Its name is that of the host of s, or web-1.
func publish(t *testing.T, client redisstore.Client, s fleet.Snapshot) {
	t.Helper()
	values := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	t.Cleanup(func() { _ = values.Close() })
	if s.Host == "" {
		s.Host = "web-1"
	}
	s.At = time.Now()
	if err := fleet.NewPublisher(values, s.Host).Publish(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
}

// A change of a bucket or a limit that no request has is refused, with those that requests have.
func TestUnknownPoliciesAndKinds(t *testing.T) {
	server := redistest.Start(t)
	l := program(t, server.Client(), redisstore.Config{})
	at := func(args ...string) ran { return run(t, append(args, "-redis", "redis://"+server.Addr())...) }
	changes := [][]string{{"block"}, {"unblock"}, {"reset"}}
	for _, c := range changes {
		at(append(c, "-policy", "api", "ip:203.0.113.66")...).want(t, 2, "-policy: no running replica publishes its policies", "-prefix, or use -force")
	}
	at("limits", "set", "api", "60/1m", "-was", "60/1m").want(t, 2, "POLICY: no running replica")

	publish(t, server.Client(), fleet.Snapshot{Policies: []fleet.Policy{{Name: "api"}}})
	publish(t, server.Client(), fleet.Snapshot{Host: "web-2", Policies: []fleet.Policy{{Name: "api"}, {Name: "login"}}})
	for _, c := range changes {
		at(append(c, "-policy", "apy", "ip:203.0.113.66")...).want(t, 2, "-policy: there is no policy apy: must be one of api, login; or use -force")
		at(append(c, "-policy", "api", "ip:203.0.113.66")...).want(t, 2, "KEY: no running replica has met a kind of key yet", "use -force")
	}
	publish(t, server.Client(), fleet.Snapshot{Host: "web-2", Policies: []fleet.Policy{{Name: "api"}, {Name: "login"}}, Kinds: []string{"ip", "member"}})
	for _, c := range changes {
		at(append(c, "-policy", "api", "tenant:1\x1b[2J")...).want(t, 2, "KEY: no replica has met such a key: it must be a kind, a colon and an identity, and the kind one of ip, member; or use -force")
		at(append(c, "-policy", "api", "203.0.113.66")...).want(t, 2, "KEY: has no kind: did you mean ip:203.0.113.66? Or it must be a kind, a colon and an identity, and the kind one of ip, member; or")
		at(append(c, "-policy", "api", "2001:db8::1")...).want(t, 2, "KEY: no replica has met such a key")
		at(append(c, "-policy", "api", "member")...).want(t, 2, "KEY: no replica has met such a key")
		at(append(c, "-policy", "api", "ip:203.0.113.0/24")...).want(t, 2, "KEY: no client has such a key. Each address of IPv4 has a key of its own, and a network has none. Or use -force")
		at(append(c, "-policy", "api", "ip:2001:db8::1")...).want(t, 2, "Did you mean ip:2001:db8::/64? Or use -force")
		at(append(c, "-policy", "login", "ip:203.0.113.66")...).want(t, 0)
		at(append(c, "-policy", "apy", "203.0.113.66", "-force")...).want(t, 0, "203.0.113.66 of policy apy")
	}
	set := []string{"limits", "set", "-was", "60/1m"}
	at(append(set, "apy", "60/1m")...).want(t, 2, "POLICY: there is no policy apy: must be one of api, login; or use -force")
	at(append(set, "api", "60/1m", "-key", "tenant:1")...).want(t, 2, "-key: no replica has met such a key", "ip, member")
	at(append(set, "api", "60/1m", "-key", "member:1")...).want(t, 0)
	at(append(set, "apy", "60/1m", "-key", "tenant:1", "-force")...).want(t, 0)

	// What only looks is not refused.
	at("peek", "-policy", "apy", "203.0.113.66").want(t, 0)
	if r, err := l.Peek(t.Context(), ratelimit.Policy{Name: "api"}, "tenant:1\x1b[2J"); err != nil || r.Blocked {
		t.Errorf("%+v, %v: what was refused was done", r, err)
	}
	server.Kill()
	at("block", "-policy", "api", "ip:192.0.2.1").want(t, 3, "connection refused")
}

// change changes a limit as limits set did a minute ago.
func change(t *testing.T, values store.Values, name, limit string) (at time.Time) {
	t.Helper()
	at = time.Now().Add(-time.Minute)
	text := fmt.Sprintf(`{"limit":%q,"by":"ann","at":%d}`, limit, at.UnixMicro())
	if _, _, err := values.WriteValue(t.Context(), "overrides", store.Value{Name: name, Text: text}); err != nil {
		t.Fatal(err)
	}
	return at
}

// Replicas publish their policies and the kinds of their keys, and keep changed limits that Redis has lost. limits get says so.
func TestLimitsThatRedisHasLost(t *testing.T) {
	server := redistest.Start(t)
	at := func(args ...string) ran { return run(t, append(args, "-redis", "redis://"+server.Addr())...) }
	values := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	defer values.Close()
	change(t, values, "api", "120/1m burst 20")
	change(t, values, "api ip:192.0.2.9", "300/1m burst 50")

	cfg := admin.Config{Top: ratelimit.Must(observe.NewTop(observe.TopConfig{}))}
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: values, Observe: cfg.Top.Observe, Logger: slog.New(slog.DiscardHandler), Policies: []ratelimit.Policy{
		{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(60).WithBurst(10)},
	}}))
	l.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Overrides = ratelimit.Must(override.Watch(ctx, l, values, override.Config{}))
	cancel() // so that it does not write back what is lost
	page := httptest.NewServer(admin.Handler(l, func(*http.Request) (string, admin.Access) { return "ann", admin.View }, cfg))
	defer page.Close()
	for r := at("block", "-policy", "api", "ip:192.0.2.1"); r.status != 0; r = at("block", "-policy", "api", "ip:192.0.2.1") {
		if t.Context().Err() != nil || !strings.Contains(r.err, "no running replica publishes") {
			t.Fatalf("status %d: %s", r.status, r.err)
		}
	}
	at("block", "-policy", "api", "member:1").want(t, 2, "the kind ip; or use -force")

	if r := at("limits", "get"); strings.Contains(r.out, "replica") {
		t.Errorf("nothing is lost:\n%s", r.out)
	}
	server.Do("hdel", "ratelimit:{overrides}", "api ip:192.0.2.9")
	at("limits", "get").want(t, 0, "- 1 replica: ", ": 1 changed limit of single keys in force, which Redis does not have.", "api      60/1m burst 10   120/1m burst 20")
	server.Do("del", "ratelimit:{overrides}")
	at("limits", "get").want(t, 0, "- 1 replica: ", ": api is limited to 120/1m burst 20 in place of 60/1m burst 10, and Redis", "does not have this change.\n", "write them back within ten minutes", "\n\nRedis has no changed limit\n")
}

func TestLimitsThatReplicasDoNotFollow(t *testing.T) {
	server := redistest.Start(t)
	values := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	defer values.Close()
	at := change(t, values, "api", "120/1m")
	for host, o := range map[string]fleet.Overrides{
		"web-1": {Changed: at, Count: 1},
		"web-2": {Changed: at.Add(-time.Hour)},
		"web-3": {Changed: at.Add(-time.Minute)},
		"web-4": {},
		"web-5": {Changed: at, Problem: "The overrides cannot be read."},
	} {
		publish(t, server.Client(), fleet.Snapshot{Host: host, Overrides: o})
	}
	r := run(t, "limits", "get", "-redis", "redis://"+server.Addr())
	r.want(t, 0, "- 2 replicas: web-2, web-3: the last change is not followed.\n",
		"- 1 replica: web-4: no change is known: the program must call override.Watch, and set\n  admin.Config.Overrides.\n",
		"- 1 replica: web-5: The overrides cannot be read.\n")
	if strings.Contains(r.out, "web-1") {
		t.Errorf("web-1 follows:\n%s", r.out)
	}
}
