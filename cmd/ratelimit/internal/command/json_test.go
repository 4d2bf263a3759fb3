package command_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// fields reads the JSON object that a run wrote.
func (r ran) fields(t *testing.T) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &fields); err != nil {
		t.Fatalf("%v:\n%s%s", err, r.out, r.err)
	}
	return fields
}

// wantFields compares some fields, as fmt prints them.
func (r ran) wantFields(t *testing.T, want string) {
	t.Helper()
	fields := r.fields(t)
	for pair := range strings.SplitSeq(want, ", ") {
		name, value, _ := strings.Cut(pair, "=")
		if got := fmt.Sprint(fields[name]); got != value {
			t.Errorf("%s is %s, want %s", name, got, value)
		}
	}
}

func TestPeekJSON(t *testing.T) {
	server := redistest.Start(t)
	l := program(t, server.Client(), redisstore.Config{})
	peek := func(key string) ran {
		r := run(t, "peek", "-json", "-redis", "redis://"+server.Addr(), "-policy", "api", key)
		r.want(t, 0)
		return r
	}
	peek("k:\u202e").wantFields(t, "policy=api, key=k:\u202e, state=full, limit=<nil>, tokens=<nil>, next_in_seconds=0, full_in_seconds=0")
	take(t, l, "k:1", 3)
	peek("k:1").wantFields(t, "state=ready, limit=1/1m burst 10, burst=10, tokens=7, next_in_seconds=0")
	take(t, l, "k:2", 10)
	peek("k:2").wantFields(t, "state=empty, tokens=0")
	waits := api
	waits.MaxWait = time.Hour
	if r, err := l.Take(t.Context(), waits, "k:2", 4); err != nil || !r.Allowed {
		t.Fatalf("Take: %+v, %v", r, err)
	}
	r := peek("k:2")
	r.wantFields(t, "state=debt, tokens=-4")
	if next := r.fields(t)["next_in_seconds"].(float64); next < 290 || next > 300 {
		t.Errorf("next_in_seconds is %v", next)
	}
	if _, err := l.Block(t.Context(), api, "k:1", time.Hour, "ann: scrapes"); err != nil {
		t.Fatal(err)
	}
	r = peek("k:1")
	r.wantFields(t, "state=blocked, tokens=<nil>, reason=ann: scrapes")
	if next := r.fields(t)["next_in_seconds"].(float64); next < 3500 || next > 3600 {
		t.Errorf("next_in_seconds is %v", next)
	}
	if r.err != "" {
		t.Errorf("beside JSON: %s", r.err)
	}
	server.Kill()
	if r := run(t, "peek", "-json", "-redis", "redis://"+server.Addr(), "-policy", "api", "k:1"); r.status != 3 || r.out != "" || r.err == "" {
		t.Errorf("without Redis: status %d, %q, %q", r.status, r.out, r.err)
	}
}

func TestDiagnoseJSON(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	args := []string{"diagnose", "-json", "-redis", "redis://" + server.Addr()}
	r := run(t, args...)
	r.want(t, 1, "allkeys-lru")
	r.wantFields(t, "server=Redis at "+server.Addr()+", answers=true")
	server.Do("config", "set", "maxmemory-policy", "noeviction")
	r = run(t, args...)
	r.want(t, 0)
	r.wantFields(t, "answers=true, findings=[]")
	server.Kill()
	r = run(t, args...)
	r.want(t, 3, "does not answer")
	r.wantFields(t, "answers=false")
}

func TestTopJSON(t *testing.T) {
	server := adminSite(t)
	s := setup{env: map[string]string{"RATELIMIT_ADMIN": server.URL, "RATELIMIT_ADMIN_HEADER": "Authorization: Bearer " + canary}}
	r := s.run(t, "top", "-json")
	r.want(t, 0, `member:\u202eevil`)
	r.wantFields(t, "version=2, keys_left_out=0")
	if keys, _ := r.fields(t)["keys"].([]any); len(keys) != 4 {
		t.Errorf("%d keys, want 4", len(keys))
	}
	run(t, "top", "-json", "-admin", server.URL).want(t, 3, "refuses (403)")
}
