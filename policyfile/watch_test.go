package policyfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
	"github.com/go-tokenbucket/ratelimit/store"
)

const before = `version: 1
policies:
  - name: api
    key: remote_ip
    limit: 60/1m burst 10
  - name: login
    on: [POST /login]
    key: remote_ip
    limit: 1/15m burst 5
    lock_for: 15m
`

// A watched is a file that is watched in a synctest bubble.
type watched struct {
	t       *testing.T
	path    string
	limiter *ratelimit.Limiter
	log     logged
	mounted any
}

// watch runs test with a file that has text, and a limiter that was made of it.
func watch(t *testing.T, text string, test func(w *watched)) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, text)
	synctest.Test(t, func(t *testing.T) {
		f, err := policyfile.Load(path, registry)
		if err != nil {
			t.Fatal(err)
		}
		w := &watched{t: t, path: path}
		w.limiter = ratelimit.Must(ratelimit.New(ratelimit.Config{Store: noStore{}, Policies: f.Everywhere()}))
		w.mounted = w.limiter.Limit(f.Named("login")...) // a mounted policy is forgotten with its middleware
		ctx, stop := context.WithCancel(t.Context())
		defer stop() // what goes on afterwards fails the test
		if err := policyfile.Watch(ctx, w.limiter, path, registry, policyfile.WatchConfig{Logger: slog.New(slog.NewTextHandler(&w.log, nil))}); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

// A logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns the lines since the last call.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return strings.Split(l.text.String(), "\n")[:strings.Count(l.text.String(), "\n")]
}

// noStore keeps nothing.
type noStore struct{}

func (noStore) Take(context.Context, []store.Charge, []store.State) (bool, error) { return true, nil }

func (w *watched) write(text string) { write(w.t, w.path, text) }

// pass lets n looks pass.
func (w *watched) pass(n int) {
	time.Sleep(time.Duration(n) * time.Second)
	synctest.Wait()
}

// want checks the limits that are in force, and what was logged since the last call.
func (w *watched) want(limits string, logged ...string) {
	w.t.Helper()
	var got []string
	for _, p := range w.limiter.Policies() {
		got = append(got, p.Name+" "+p.Limit.String())
	}
	if got := strings.Join(got, ", "); got != limits {
		w.t.Errorf("in force: %s, want %s", got, limits)
	}
	lines := w.log.take()
	if len(lines) != len(logged) {
		w.t.Errorf("%d lines were logged, want %d: %q", len(lines), len(logged), lines)
		return
	}
	for i, line := range lines {
		for _, part := range strings.Split(logged[i], "…") {
			if !strings.Contains(line, part) {
				w.t.Errorf("logged %s, want %s", line, logged[i])
			}
		}
	}
}

const asBefore = "api 60/1m burst 10, login 1/15m burst 5"

var after = strings.NewReplacer("burst 10", "burst 20", "burst 5", "burst 6").Replace(before)

func TestWatchAppliesAChange(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "level=INFO…changed=\"[api login]\"…limits=[]")
		w.pass(10)
		w.want(asBefore)
		w.write(after)
		w.pass(1)
		w.want(asBefore)
		w.pass(1)
		w.want("api 60/1m burst 20, login 1/15m burst 6", `level=INFO…in force…changed="[api login]" limits="[api: 60/1m burst 10 -> 60/1m burst 20 login: 1/15m burst 5 -> 1/15m burst 6]"`)
		w.write(strings.Replace(after, "60/1m", "50/1m", 1))
		w.pass(2)
		w.want("api 50/1m burst 20, login 1/15m burst 6", `changed=[api] limits="[api: 60/1m burst 20 -> 50/1m burst 20]"`)
		w.pass(10)
		w.want("api 50/1m burst 20, login 1/15m burst 6")
	})
}

// All fields of a policy are replaced, also where Limit has mounted it.
func TestWatchReplacesAllFields(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.write(strings.ReplaceAll(strings.ReplaceAll(before, "lock_for: 15m", "max_wait: 1s\n    shadow: true\n    cost: pages"), "key: remote_ip", "key: members"))
		w.pass(2)
		all := w.limiter.Policies()
		if login := all[1]; login.LockFor != 0 || login.MaxWait != time.Second || !login.Shadow || login.Cost(nil) != 3 {
			t.Errorf("login %+v", login)
		}
		if key, err := all[0].Key(nil); key != "member:5" {
			t.Errorf("key %q, error %v", key, err)
		}
	})
}

// A file that is different in each look is being written.
func TestWatchWaitsUntilAFileStays(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "in force")
		for i := range 5 {
			w.write(after + strings.Repeat("#", i+1) + "\n")
			w.pass(1)
			w.want(asBefore)
		}
		w.pass(1)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "in force")
		w.write(before)
		w.pass(1)
		w.write(after + "#####\n") // back to what is in force
		w.pass(5)
		w.want("api 60/1m burst 20, login 1/15m burst 6")
	})
}

// A file with faults changes nothing, and is logged once, with all lines.
func TestWatchKeepsWhatIsInForce(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "in force")
		w.write(strings.NewReplacer("60/1m", "0/1m", "lock_for", "lock").Replace(after))
		w.pass(10)
		w.want(asBefore, "level=ERROR…last policies stay in force…limits.yaml:5:12: policies[0].limit…limits.yaml:10:5: policies[1].lock: unknown field: did you mean lock_for?")
		w.write(before)
		w.pass(10)
		w.want(asBefore)
		for range 2 { // the same faults, after a file without
			w.write("")
			w.pass(10)
			w.want(asBefore, "level=ERROR…limits.yaml:1:1: is empty")
			w.write(before)
			w.pass(10)
			w.want(asBefore)
		}
		w.write(after)
		w.pass(10)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "in force")
	})
}

// A file that cannot be read is logged once each time, and must then be the same in two looks again.
func TestWatchWaitsForAFileThatIsAway(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "in force")
		w.write(after)
		w.pass(1)
		for range 2 {
			if err := os.Remove(w.path); err != nil {
				t.Fatal(err)
			}
			w.pass(3)
			w.want(asBefore, "level=ERROR…the file cannot be read")
			w.write(after)
			w.pass(1)
			w.want(asBefore)
		}
		w.pass(1)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "in force")
	})
}

// A policy that is missing was lost by mistake, unless the file says that it is removed.
func TestWatchAsksForRemovals(t *testing.T) {
	two := strings.Replace(before, "  - name: login", "  - {name: old, key: remote_ip, limit: 1/s}\n  - name: login", 1)
	watch(t, two, func(w *watched) {
		w.want("api 60/1m burst 10, old 1/1s, login 1/15m burst 5", "in force")
		w.write(before)
		w.pass(5)
		w.want("api 60/1m burst 10, old 1/1s, login 1/15m burst 5", `level=ERROR…limits.yaml:3:3: policies: policy old is missing, which the file had before: to remove it, write removed: [old]`)
		w.write(before + "removed: [old]\n")
		w.pass(5)
		w.want(asBefore, `changed=[old] limits="[old: 1/1s -> none]"`)
		w.write(before)
		w.pass(5)
		w.want(asBefore, "changed=[] limits=[]")
		w.write(before[:strings.Index(before, "  - name: login")] + "removed: [login]\n")
		w.pass(5)
		w.want(asBefore, "level=WARN…a removed policy stays in force where Limiter.Limit has mounted it…policy=login", "changed=[login] limits=[]")
	})
}

// A policy with `on` that the program has not mounted must not become one of all routes.
func TestWatchLeavesOutWhatIsNotMounted(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "in force")
		w.write(after + "  - {name: export, on: [/export], key: remote_ip, limit: 1/h}\n")
		w.pass(5)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "level=WARN…a policy is not in force: mount it with Limiter.Limit…line=11…policy=export", `changed="[api export login]" limits="[api: 60/1m burst 10 -> 60/1m burst 20 login: 1/15m burst 5 -> 1/15m burst 6]"`)
		w.write(after + "  - {name: export, key: remote_ip, limit: 1/h}\n")
		w.pass(5)
		w.want("api 60/1m burst 20, export 1/1h, login 1/15m burst 6", `changed=[export] limits="[export: none -> 1/1h]"`)
	})
}

// The line of a change has limits that functions choose, those of the program that the first file has changed, and those
// that an operator has overridden, too. It is bounded.
func TestWatchLogsWhichLimitsChanged(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "in force")
		if err := w.limiter.Override([]ratelimit.Override{{Policy: "api", Limit: ratelimit.PerMinute(7)}}); err != nil {
			t.Fatal(err)
		}
		w.write(strings.Replace(before, "limit: 60/1m burst 10", "limit_func: tier", 1))
		w.pass(2)
		w.want("api 7/1m, login 1/15m burst 5", `changed=[api] limits="[api: 60/1m burst 10 -> by limit_func]"`)
		w.write(before)
		w.pass(2)
		w.want("api 7/1m, login 1/15m burst 5", `limits="[api: by limit_func -> 60/1m burst 10]"`)
		many := before
		for i := range 1000 {
			many += fmt.Sprintf("  - {name: p%03d, key: remote_ip, limit: 1/s}\n", i)
		}
		w.write(many)
		w.pass(2)
		if lines := w.log.take(); len(lines) != 1 || len(lines[0]) > 3000 || strings.Count(lines[0], "and 950 more") != 2 || !strings.Contains(lines[0], "p049: none -> 1/1s and") {
			t.Errorf("logged %q", lines)
		}
	})
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, "version: 1\npolicies:\n  - {name: api, key: remote_ip, limit: 5/s}\n")
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: noStore{}, Policies: []ratelimit.Policy{{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(3)}}}))
	var log logged
	if err := policyfile.Watch(t.Context(), limiter, path, registry, policyfile.WatchConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
		t.Fatal(err)
	}
	if lines := log.take(); len(lines) != 1 || !strings.Contains(lines[0], `limits="[api: 3/1s -> 5/1s]"`) {
		t.Errorf("the first file: logged %q", lines)
	}
}

func TestWatchReturnsTheFirstError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: noStore{}}))
	run := func(cfg policyfile.WatchConfig) error {
		return policyfile.Watch(t.Context(), limiter, path, registry, cfg)
	}
	if err := run(policyfile.WatchConfig{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	write(t, path, strings.Replace(before, "60/1m", "0/1m", 1))
	var faults policyfile.Faults
	if err := run(policyfile.WatchConfig{}); !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line != 5 {
		t.Errorf("error %v", err)
	}
	quiet := slog.New(slog.DiscardHandler)
	write(t, path, before)
	if err := run(policyfile.WatchConfig{Logger: quiet}); !errors.As(err, &faults) || !strings.Contains(err.Error(), `limits.yaml:3:11: policies[0].name: "api": must be the name of a policy that Limit has mounted (none yet), because Config.Policies is empty`) {
		t.Errorf("error %v", err)
	}
	write(t, path, strings.Replace(before, "- name: api", "- {name: export, on: [/export], key: remote_ip, limit: 1/h}\n  - name: api", 1))
	if err := run(policyfile.WatchConfig{Logger: quiet}); !errors.As(err, &faults) || len(faults) != 1 || !strings.Contains(err.Error(), `limits.yaml:4:11: policies[1].name: "api": must be the name`) {
		t.Errorf("error %v", err)
	}
	write(t, path, strings.Replace(before, "- name: api", "- name: api\n    on: [/api]", 1))
	if err := run(policyfile.WatchConfig{Logger: quiet}); !errors.As(err, &faults) || !strings.Contains(err.Error(), `limits.yaml:3:3: policies: must have a policy that the program has mounted`) {
		t.Errorf("error %v", err)
	}
	if err := run(policyfile.WatchConfig{Every: -1}); err == nil || !strings.Contains(err.Error(), "Every -1ns: must be positive") {
		t.Errorf("error %v", err)
	}
}
