package command_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
	"github.com/go-tokenbucket/ratelimit/store"
)

// The clock of a bubble begins with the year 2000 in UTC.
func TestBucketOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer l.Close()
		p := ratelimit.Policy{Name: "plan", Limit: ratelimit.Quota(100_000, ratelimit.Month).In("Europe/Berlin")}
		text := func() string {
			t.Helper()
			b, err := l.Peek(t.Context(), ratelimit.Policy{Name: "plan"}, "member:5")
			if err != nil {
				t.Fatal(err)
			}
			return command.BucketText(&b)
		}
		take := func(n int64) {
			t.Helper()
			if r, err := l.Take(t.Context(), p, "member:5", n); err != nil || !r.Allowed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		take(3)
		if got := text(); got != `
policy        plan
key           member:5
state         ready
used          3 of 100000
limit         100000 per month Europe/Berlin
full in       30 d 23 h
period ends   2000-02-01 00:00 CET
`[1:] {
			t.Error(got)
		}
		take(99_997)
		if got := text(); !strings.Contains(got, "state         empty\nused          100000 of 100000\n") || !strings.Contains(got, "next in       30 d 23 h\n") {
			t.Error(got)
		}
		if _, err := l.Block(t.Context(), p, "member:5", time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if got := text(); !strings.Contains(got, "blocked for 60 min\n") || strings.Contains(got, "used") || strings.Contains(got, "period") {
			t.Error(got)
		}
	})
}

func TestPolicyFileOfQuotas(t *testing.T) {
	const text = "version: 1\npolicies:\n  - name: plan\n    key: remote_ip\n    limit: "
	r := run(t, "policies", file(t, "plan.yaml", text+"100000 per month Europe/Berlin\n"))
	r.want(t, 0, `"limit": "100000 per month Europe/Berlin"`)
	if strings.Contains(r.out, "burst") {
		t.Errorf("a quota has a burst: %s", r.out)
	}
	for limit, want := range map[string]string{
		"100000 per month Europe/Nowhere": `Zone "Europe/Nowhere": must be a time zone`,
		"4503599627370497 per month":      "Rate 4503599627370497: must be from 1 to 4503599627370496 tokens",
		"5 per year":                      `period "year": must be hour, day, week or month`,
	} {
		bad := file(t, "bad.yaml", text+limit+"\n")
		run(t, "policies", "-check", bad).want(t, 1, "bad.yaml:5:12", want)
		run(t, "explain", "-policies", bad, "/").want(t, 3, "bad.yaml:5:12", want)
		run(t, "simulate", "-policies", bad, file(t, "a.log", logLine)).want(t, 3, "bad.yaml:5:12", want)
	}
}

func TestBucketOfSlots(t *testing.T) {
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	defer l.Close()
	exports := ratelimit.Policy{Name: "exports", Limit: ratelimit.Concurrency(3)}
	charge := []store.Charge{{Policy: "exports", Key: "member:5", Limit: ratelimit.Must(store.NewConcurrency(3)), Cost: 1}}
	text := func() string {
		t.Helper()
		b, err := l.Peek(t.Context(), ratelimit.Policy{Name: "exports"}, "member:5")
		if err != nil {
			t.Fatal(err)
		}
		return command.BucketText(&b)
	}
	for held, state := range []string{"full", "ready", "ready", "empty"} {
		want := fmt.Sprintf("policy   exports\nkey      member:5\nstate    %s\nslots    %d of 3 held, %d free\nlimit    3 at once\n", state, held, 3-held)
		if held == 0 {
			want = "policy   exports\nkey      member:5\nstate    full\n"
		}
		if got := text(); got != want {
			t.Errorf("%d held: %s, want %s", held, got, want)
		}
		if _, err := l.Store().Take(t.Context(), charge, make([]store.State, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Block(t.Context(), exports, "member:5", time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	if got := text(); !strings.Contains(got, "blocked for 60 min\n") || strings.Contains(got, "slots") {
		t.Error(got)
	}
}

func TestPolicyFileOfSlots(t *testing.T) {
	const text = "version: 1\npolicies:\n  - name: exports\n    key: remote_ip\n    limit: "
	r := run(t, "policies", file(t, "exports.yaml", text+"3 at once\n"))
	r.want(t, 0, `"limit": "3 at once"`)
	if strings.Contains(r.out, "burst") {
		t.Errorf("slots have a burst: %s", r.out)
	}
	run(t, "policies", "-check", file(t, "bad.yaml", text+"3 concurrent\n")).want(t, 1, "bad.yaml:5:12", `or "3 at once"`)
}
