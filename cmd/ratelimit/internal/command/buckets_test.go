package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

var api = ratelimit.Policy{Name: "api", Limit: ratelimit.PerHour(60).WithBurst(10)}

// program returns a Limiter as the program has it.
func program(t *testing.T, client redisstore.Client, cfg redisstore.Config) *ratelimit.Limiter {
	t.Helper()
	s := ratelimit.Must(redisstore.New(client, cfg))
	t.Cleanup(func() { _ = s.Close() })
	return ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s, Timeout: 5 * time.Second}))
}

func take(t *testing.T, l *ratelimit.Limiter, key string, n int64) {
	t.Helper()
	if r, err := l.Take(t.Context(), api, key, n); err != nil || !r.Allowed {
		t.Fatalf("Take: %+v, %v", r, err)
	}
}

func TestBuckets(t *testing.T) {
	server := redistest.Start(t)
	url := "redis://" + server.Addr()
	l := program(t, server.Client(), redisstore.Config{})
	at := func(args ...string) ran { return run(t, append(args, "-redis", url, "-policy", "api")...) }
	const hostile = "ip:\x1b[31m\u202e\n"
	publish(t, server.Client(), fleet.Snapshot{Policies: []fleet.Policy{{Name: "api"}}, Kinds: []string{"ip"}})

	take(t, l, "ip:192.0.2.1", 3)
	take(t, l, hostile, 10)
	at("peek", "ip:192.0.2.1").want(t, 0, `
policy    api
key       ip:192.0.2.1
state     ready
tokens    7 of 10
limit     1/1m burst 10
full in   3 min
`[1:])
	r := at("peek", hostile)
	r.want(t, 0, `key       ip:\x1b[31m\u202e\n`, "state     empty", "tokens    0 of 10", "next in   60 s\n")
	if strings.ContainsAny(r.out, "\x1b\u202e") {
		t.Errorf("not escaped: %q", r.out)
	}

	at("reset", "ip:192.0.2.1").want(t, 0, "reset ip:192.0.2.1 of policy api", "state    full")
	at("peek", "ip:192.0.2.1").want(t, 0, "state    full\n", "Redis keeps nothing for this key")

	at("block", "ip:192.0.2.1", "-for", "1h").want(t, 0, "blocked ip:192.0.2.1 of policy api", "state    blocked for 60 min\n")
	if r, err := l.Take(t.Context(), api, "ip:192.0.2.1", 1); err != nil || r.Allowed || !r.Blocked {
		t.Errorf("after block: %+v, %v", r, err)
	}
	at("unblock", "ip:192.0.2.1").want(t, 0, "unblocked ip:192.0.2.1 of policy api", "state    full")
	at("block", "ip:192.0.2.1").want(t, 0, "blocked for 15 min\n")
	at("reset", "ip:192.0.2.1").want(t, 0, "state    full")

	// A wrong argument is wrong usage, and says nothing of Redis: nothing was sent.
	for _, d := range []string{"1ns", "400000h"} {
		r := at("block", "ip:192.0.2.1", "-for", d)
		r.want(t, 2, "-for: must be from 1µs to ")
		if strings.Contains(r.err, "not known") {
			t.Errorf("block -for %s: %s", d, r.err)
		}
	}
	run(t, "peek", "-redis", url, "-policy", "a b", "ip:192.0.2.1").want(t, 2, "-policy: must be 1 to 63 ASCII letters")
	at("peek", "--", "-key").want(t, 2, "an argument is the URL of a Redis") // what follows is no flag any more
	run(t, "peek", "-redis", url, "-policy", "api", "--", "-key").want(t, 0, "key      -key\n")
}

func TestBucketsInDebt(t *testing.T) {
	server := redistest.Start(t)
	l := program(t, server.Client(), redisstore.Config{})
	take(t, l, "ip:192.0.2.1", 10)
	waits := api
	waits.MaxWait = time.Hour
	if r, err := l.Take(t.Context(), waits, "ip:192.0.2.1", 4); err != nil || !r.Allowed {
		t.Fatalf("Take: %+v, %v", r, err)
	}
	run(t, "peek", "ip:192.0.2.1", "-redis", "redis://"+server.Addr(), "-policy", "api").want(t, 0, "state     in debt", "tokens    -4 of 10", "next in   5 min\n", "full in   14 min\n")
}

// The prefix, the secret and the user of the program lead to its buckets, and so does a cluster.
func TestBucketsOfOtherPrograms(t *testing.T) {
	server := redistest.Start(t)
	server.Do("config", "set", "requirepass", canary)
	l := program(t, redisClient(t, "redis://:"+canary+"@"+server.Addr()), redisstore.Config{Prefix: "shop", Secret: []byte("0123456789abcdef")})
	take(t, l, "member:5", 1)
	secret := file(t, "secret", "0123456789abcdef\n")
	s := setup{env: map[string]string{"RATELIMIT_REDIS": "redis://:" + canary + "@" + server.Addr()}}
	s.run(t, "peek", "-policy=api", "member:5", "-prefix", "shop", "-secret-file", secret).want(t, 0, "tokens    9 of 10")
	s.run(t, "peek", "-policy=api", "member:5", "-prefix", "shop").want(t, 0, "state    full", "-secret-file")
	s.run(t, "diagnose").want(t, 0, "Redis at "+server.Addr()+": no findings")

	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 2)
		l := program(t, cluster.Client(), redisstore.Config{})
		at := func(args ...string) ran {
			return run(t, append(args, "-redis", "redis://"+cluster.Addrs()[0], "-cluster")...)
		}
		for _, key := range []string{"member:1", "member:2", "member:3", "member:4"} {
			take(t, l, key, 2)
			at("peek", "-policy", "api", key).want(t, 0, "tokens    8 of 10")
		}
		at("diagnose").want(t, 0, "no findings")
		at("limits", "set", "api", "120/1m", "-was", "60/1m", "-force").want(t, 0, "api      ?         120/1m")
		at("limits", "get").want(t, 0, "api      ?         120/1m")
		run(t, "diagnose", "-redis", "redis://"+cluster.Addrs()[0]).want(t, 1, "node of a cluster")
		cluster.Nodes[1].Kill()
		at("diagnose").want(t, 1, "does not answer") // the other node does
		cluster.Nodes[0].Kill()
		at("diagnose").want(t, 3, "does not answer")
	})
}

func TestDiagnose(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	url := "redis://" + server.Addr()
	run(t, "diagnose", "-redis", url).want(t, 1, "1 finding\n- ", "allkeys-lru")
	painted := setup{terminal: true, env: map[string]string{"TERM": "xterm"}}.run(t, "diagnose", "-redis", url)
	painted.want(t, 1, "\x1b[1;31m1 finding\x1b[0m")
	for name, env := range map[string]map[string]string{
		"no TERM":  {},
		"dumb":     {"TERM": "dumb"},
		"NO_COLOR": {"TERM": "xterm", "NO_COLOR": "1"},
	} {
		if r := (setup{terminal: true, env: env}).run(t, "diagnose", "-redis", url); strings.Contains(r.out, "\x1b") {
			t.Errorf("%s: colours: %q", name, r.out)
		}
	}
	if r := (setup{env: map[string]string{"TERM": "xterm"}}).run(t, "diagnose", "-redis", url); strings.Contains(r.out, "\x1b") {
		t.Errorf("no terminal: colours: %q", r.out)
	}

	server.Kill()
	run(t, "diagnose", "-redis", url).want(t, 3, "does not answer")
	for _, name := range []string{"peek", "reset", "block", "unblock"} {
		r := run(t, name, "ip:192.0.2.1", "-policy", "api", "-redis", url)
		r.want(t, 3, "Redis at "+server.Addr())
		if unknown := strings.Contains(r.err, "not known"); unknown {
			t.Errorf("%s: a call that was not sent is not in doubt: %s", name, r.err)
		}
	}
}
