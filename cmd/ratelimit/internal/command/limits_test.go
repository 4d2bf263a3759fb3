package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestLimits(t *testing.T) {
	server := redistest.Start(t)
	url := "redis://" + server.Addr()
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 60/1m burst 10\n  - name: login\n    key: remote_ip\n    limit: 1/15m burst 5\n  - name: jobs\n    key: remote_ip\n    limit: 3 at once\n")
	at := func(args ...string) ran { return run(t, append(append([]string{"limits"}, args...), "-redis", url)...) }
	publish(t, server.Client(), fleet.Snapshot{Policies: []fleet.Policy{{Name: "api"}, {Name: "login"}}})

	at("get").want(t, 0, "Redis has no changed limit\n")
	at("get", "-policies", policies).want(t, 0, "api      60/1m burst 10   60/1m burst 10", "login    1/15m burst 5    1/15m burst 5")

	at("set", "api", "120/1m burst 20").want(t, 1, "the program's limit is not known", "-was") // neither -policies nor -was
	at("set", "api", "120/1m burst 20", "-was", "30/1m", "-policies", policies).want(t, 1, "it is 60/1m burst 10, not 30/1m")
	at("set", "api", "120/1m", "burst", "20", "-was", "60/1m burst 10", "-by", "alice", "-why", "sale\x1b[31m").want(t, 0,
		"120/1m burst 20", "by alice: sale\\x1b[31m", "60/1m burst 10 to 120/1m burst 20")
	at("get").want(t, 0, "api      ?         120/1m burst 20")
	at("get", "login").want(t, 0, "Redis has no changed limit")
	at("get", "api", "-policies", policies).want(t, 0, "120/1m burst 20", "Last changes")

	at("set", "api", "6000/1m", "-policies", policies).want(t, 1, "must be at most 10 times higher or lower", "-force")
	at("set", "api", "5/1m burst 1", "-policies", policies).want(t, 1, "must be at most 10 times higher or lower")
	r := at("set", "api", "6000/1m", "-policies", policies, "-force")
	r.want(t, 0, "6000/1m", "(forced)", "by cli:")
	at("set", "api", "x", "-policies", policies).want(t, 2, "LIMIT: ")
	at("set", "api", "0/1m", "-policies", policies).want(t, 2, "use ratelimit block")
	at("set", "api", "unlimited", "-policies", policies).want(t, 1, "cannot be compared", "-force")
	at("set", "nothing", "60/1m", "-policies", policies).want(t, 2, "POLICY: there is no policy nothing: must be one of api, jobs, login; or use -force")
	at("set", "api").want(t, 2, "needs POLICY and LIMIT")
	at("set", "api", "60/1m", "-was", "x").want(t, 2, "-was: ")
	at("get").want(t, 0, "6000/1m")

	at("set", "jobs", "5", "at", "once", "-policies", policies, "-by", "alice").want(t, 0, "jobs     3 at once   5 at once", "3 at once to 5 at once")
	at("set", "jobs", "31 at once", "-policies", policies).want(t, 1, "31 at once is 10.3333 times the program's 3 at once: must be at most 10 times higher or lower", "-force")
	at("set", "jobs", "3/1m", "-policies", policies, "-force").want(t, 1, `3/1m is no concurrency limit, and that of the program (3 at once) is one: must be like "3 at once"`)
	at("set", "jobs", "0 at once", "-policies", policies).want(t, 2, "LIMIT: ", "use ratelimit block")
	at("end", "jobs").want(t, 0)
	at("end", "api", "-by", "bob", "-why", "over").want(t, 0, "Redis has no changed limit", "by bob: over")
	at("end", "api").want(t, 1, "nothing to end: it has no override\n")
	at("set", "a b", "60/1m", "-was", "60/1m").want(t, 2, "POLICY: must be the name of a policy")
	at("set", "", "60/1m", "-was", "60/1m").want(t, 2, "POLICY: must be the name of a policy")
	at("end").want(t, 2, "POLICY is missing")
	run(t, "limits").want(t, 2, "needs a further word", "Changes the limit of a policy")
	run(t, "limits", "-h").want(t, 0, "Changes the limit of a policy")
	run(t, "limits", "drop").want(t, 2, "drop: no such command")
	run(t, "help", "limits").want(t, 0, "Ends a change")
	run(t, "help", "limits", "set").want(t, 0, "-was LIMIT")

	server.Kill()
	for _, args := range [][]string{{"get"}, {"set", "api", "60/1m", "-was", "60/1m"}, {"end", "api"}} {
		at(args...).want(t, 3, "Redis at "+server.Addr())
	}
}

func TestLimitsOfKeys(t *testing.T) {
	server := redistest.Start(t)
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 60/1m burst 10\n")
	at := func(args ...string) ran {
		return run(t, append(append([]string{"limits"}, args...), "-redis", "redis://"+server.Addr(), "-policies", policies)...)
	}
	publish(t, server.Client(), fleet.Snapshot{Kinds: []string{"member"}})
	end := time.Now().AddDate(0, 0, 3).UTC().Format(time.DateOnly)
	at("set", "api", "600/1m", "burst", "100", "-key", "member:7", "-until", end, "-by", "alice", "-why", "launch").want(t, 0,
		"api member:7   60/1m burst 10   600/1m burst 100 until "+end+"T00:00:00Z", "by alice: launch", "60/1m burst 10 to 600/1m burst 100 until")
	at("set", "api", "300/1m burst 50", "-key", "member:8", "-until", "72h", "-was", "60/1m burst 10").want(t, 0, "300/1m burst 50 until ")
	at("get").want(t, 0, "member:7", "member:8", "api            60/1m burst 10   60/1m burst 10")
	r := at("get", "api", "-key", "member:8")
	if r.want(t, 0, "member:8"); strings.Contains(r.out, "member:7") {
		t.Errorf("of another key:\n%s", r.out)
	}
	at("set", "api", "601/1m burst 10", "-key", "member:7").want(t, 1, "api member:7: the rate of 601/1m burst 10 is 10.0167 times", "-force")
	for _, wrong := range []string{"Friday", "-1h", "2020-01-01", "2099-01-01", "2020-01-01T00:00:00Z", "0s"} {
		at("set", "api", "70/1m", "-key", "member:7", "-until", wrong).want(t, 2, "-until: must be")
	}
	at("set", "api", "70/1m", "-key", "member:").want(t, 2, "-key: must be a kind")
	at("end", "api", "-key", " ").want(t, 2, "-key: must be a kind")
	at("end", "api").want(t, 1, "nothing to end")
	at("end", "api", "-key", "member:7", "-why", "over").want(t, 0, "Redis has no changed limit", "600/1m burst 100 ended", ": over")
	at("get").want(t, 0, "member:8")
	run(t, "help", "limits", "set").want(t, 0, "-key KEY", "-until TIME", "a duration such as 72h")
}

// The program's limit is not known here, and may be another one than -was: -force has to be noted, or replicas refuse it.
func TestForcedLimitWithoutPolicies(t *testing.T) {
	server := redistest.Start(t)
	run(t, "limits", "set", "api", "60/1m", "-was", "60/1m", "-force", "-redis", "redis://"+server.Addr()).want(t, 0, "(forced)")
	r := run(t, "limits", "get", "-redis", "redis://"+server.Addr(), "-policies", file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 1/1h\n"))
	r.want(t, 0, "api      1/1h      60/1m      ")
	if strings.Contains(r.out, "not followed") {
		t.Errorf("refused:\n%s", r.out)
	}
}

func TestLimitsOfLimitFunc(t *testing.T) {
	server := redistest.Start(t)
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit_func: tier\n")
	run(t, "limits", "get", "-redis", "redis://"+server.Addr(), "-policies", policies, "-names", "tier").want(t, 0, "api      of LimitFunc   of LimitFunc")
}

func TestLimitsByHand(t *testing.T) {
	server := redistest.Start(t)
	buckets := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	for name, text := range map[string]string{"api": `{"limit":"6000000/1m","by":"eve` + "\u202e" + `"}`, "\x1b[2J": "x", "api k:\u202e": `{"limit":"6000000/1m"}`} {
		if _, _, err := buckets.WriteValue(t.Context(), "overrides", store.Value{Name: name, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, "limits", "get", "-redis", "redis://"+server.Addr(), "-policies", file(t, "limits.yaml", limitsFile))
	r.want(t, 0, "not followed", "malformed")
	if strings.ContainsAny(r.out, "\x1b\u202e") {
		t.Errorf("not escaped: %q", r.out)
	}
}

// What is too long is wrong usage, and its flag is named.
func TestLimitsWithLongTexts(t *testing.T) {
	server := redistest.Start(t)
	at := func(args ...string) ran { return run(t, append(args, "-redis", "redis://"+server.Addr())...) }
	long := func(n int) string { return "k:" + strings.Repeat("x", n-2) }
	set := []string{"limits", "set", "api", "60/1m", "-was", "60/1m", "-force"}
	for flag, most := range map[string]int{"-by": 128, "-why": 256, "-key": 448} {
		at(append(set, flag, long(most))...).want(t, 0, "60/1m")
		at(append(set, flag, long(most+1))...).want(t, 2, flag+": must ", "ratelimit help limits set")
		if flag != "-key" { // of a key that can have none, there is none to end
			at("limits", "end", "api", flag, long(most+1)).want(t, 2, flag+": must ")
		}
	}
	at("block", "-force", "-policy", "api", "ip:192.0.2.1", "-why", long(201)).want(t, 2, "-why: must be UTF-8, and at most 200 bytes with -by")
	at("block", "-force", "-policy", "api", "ip:192.0.2.1", "-by", long(201)).want(t, 2, "-why: must be UTF-8, and at most 200 bytes with -by")
}
