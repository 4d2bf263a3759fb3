package observe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// A directory is a database of names.
type directory struct {
	mu      sync.Mutex
	of      func(ctx context.Context, key string) (string, error)
	looked  map[string]int // lookups by key
	running int
	most    int
}

func (d *directory) lookup(ctx context.Context, policy, key string) (string, error) {
	d.mu.Lock()
	if d.looked == nil {
		d.looked = make(map[string]int)
	}
	d.looked[policy+" "+key]++
	d.running++
	d.most = max(d.most, d.running)
	of := d.of
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running--
	}()
	return of(ctx, key)
}

func (d *directory) becomes(of func(ctx context.Context, key string) (string, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = of
}

func named(name string, err error) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) { return name, err }
}

// newNames returns Names of d, and what they log.
func newNames(t *testing.T, d *directory) (*observe.Names, *logged) {
	log := new(logged)
	names, err := observe.NewNames(d.lookup, observe.NamesConfig{Logger: slog.New(slog.NewTextHandler(log, withoutTime))})
	if err != nil {
		t.Fatal(err)
	}
	return names, log
}

// A logged is what was logged by any goroutine.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestNamesAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{of: named("ACME", nil)}
		names, log := newNames(t, d)
		lookups := 0
		want := func(after time.Duration, name string, looked bool) {
			t.Helper()
			time.Sleep(after)
			got := names.Name("api", "apikey:5f")
			if got != name {
				t.Errorf("%q, want %q", got, name)
			}
			synctest.Wait()
			if looked {
				lookups++
			}
			if n := d.looked["api apikey:5f"]; n != lookups {
				t.Errorf("%d lookups, want %d", n, lookups)
			}
		}
		want(0, "", true)
		want(0, "ACME", false)
		want(10*time.Minute-1, "ACME", false)
		d.becomes(named("Acme Inc.", nil))
		want(1, "ACME", true) // while it is looked up
		want(0, "Acme Inc.", false)
		d.becomes(named("", errors.New("away")))
		want(10*time.Minute, "Acme Inc.", true)
		want(time.Minute-1, "Acme Inc.", false)
		want(1, "Acme Inc.", true)
		d.becomes(named("", nil))
		want(time.Minute, "Acme Inc.", true)
		want(time.Minute-1, "", false)
		want(1, "", true)
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `level=WARN msg="observe: Names: the name of a key was not found" error=away policy=api`) {
			t.Errorf("logged %s", got)
		}
		if got := names.Name("org", "apikey:5f"); got != "" {
			t.Errorf("the key of another policy: %q", got)
		}
		synctest.Wait()
	})
}

// Whatever the function returns, or does, Name returns at once, and returns a short text that is safe to show.
func TestNamesOfAHostileFunction(t *testing.T) {
	for name, c := range map[string]struct {
		of     func(context.Context, string) (string, error)
		want   string
		logged string
	}{
		"long":           {named(strings.Repeat("x", 1<<20), nil), strings.Repeat("x", 128) + "…", ""},
		"controls":       {named("a\x1b[31m\u202eb\nlevel=INFO", nil), `a\x1b[31m\u202eb\nlevel=INFO`, ""},
		"no UTF-8":       {named("\xff<b>", nil), `\xff<b>`, ""},
		"panic":          {func(context.Context, string) (string, error) { panic("boom") }, "", "panic: boom"},
		"goroutine ends": {func(context.Context, string) (string, error) { runtime.Goexit(); return "", nil }, "", "ended its goroutine"},
		"broken error":   {func(context.Context, string) (string, error) { return "x", brokenError{} }, "", "PANIC"},
		"long error":     {named("x", errors.New(strings.Repeat("e", 1<<20))), "", "eee…"},
		"slow":           {func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "x", ctx.Err() }, "", "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names, log := newNames(t, &directory{of: c.of})
				for i := range 6 { // more than run at once
					names.Name("api", fmt.Sprint("k", i))
				}
				time.Sleep(5 * time.Second)
				for i := range 6 {
					if got := names.Name("api", fmt.Sprint("k", i)); got != c.want {
						t.Errorf("%q, want %q", got, c.want)
					}
				}
				text := log.String()
				if !strings.Contains(text, c.logged) || (text == "") != (c.logged == "") || len(text) > 2048 || strings.Count(text, "\n") > 1 {
					t.Errorf("logged %.4096s", text)
				}
			})
		})
	}
}

type brokenError struct{}

func (brokenError) Error() string { panic("broken") }

// A function that never returns costs four goroutines and a warning. Name does not wait for it, and names come when it
// returns after all.
func TestNamesOfAFunctionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		d := &directory{of: func(context.Context, string) (string, error) { <-release; return "late", nil }}
		names, log := newNames(t, d)
		for i := range 5000 {
			names.Name("api", fmt.Sprint("k", i%50))
		}
		synctest.Wait()
		if d.running != 4 {
			t.Errorf("%d lookups run, want 4", d.running)
		}
		time.Sleep(time.Hour)
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "the lookup goes on although its context has ended") {
			t.Errorf("logged %s", text)
		}
		close(release)
		synctest.Wait()
		for i := range 50 {
			if got := names.Name("api", fmt.Sprint("k", i)); got != "late" {
				t.Errorf("k%d: %q", i, got)
			}
		}
		if d.most != 4 {
			t.Errorf("%d lookups at once, want 4", d.most)
		}
	})
}

// Keys that are asked for again and again are looked up soon, and stay: also in a flood, for which the log asks for 1,024 new
// keys at the beginning of each minute, and in one of 300 new keys a second.
func TestNamesInAFlood(t *testing.T) {
	for name, c := range map[string]struct {
		flood func(poll int) (keys int)
		known int // from this poll on, all have their names
	}{
		"of lines": {func(poll int) int {
			if poll%30 == 0 {
				return 1024
			}
			return 0
		}, 4},
		"of other keys": {func(int) int { return 600 }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &directory{of: func(_ context.Context, key string) (string, error) {
					time.Sleep(50 * time.Millisecond)
					return "name of " + key, nil
				}}
				names, _ := newNames(t, d)
				flood := 0
				for poll := range 40 {
					for range c.flood(poll) {
						names.Name("api", fmt.Sprint("flood", flood))
						flood++
					}
					missing := 0
					for i := range 50 {
						if names.Name("api", fmt.Sprint("heavy", i)) == "" {
							missing++
						}
					}
					if missing > 0 && poll >= c.known {
						t.Errorf("poll %d: %d of 50 keys have no name", poll, missing)
					}
					time.Sleep(2 * time.Second)
				}
				time.Sleep(time.Minute)
				synctest.Wait() // the last lookups end in this instant, too
				if len(d.looked) < 1000 {
					t.Errorf("%d keys were looked up: no flood", len(d.looked))
				}
			})
		})
	}
}

// The memory is bounded, whatever is asked for.
func TestNamesAreBounded(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	synctest.Test(t, func(t *testing.T) {
		names, err := observe.NewNames(func(context.Context, string, string) (string, error) { return strings.Repeat("n", 200), nil }, observe.NamesConfig{})
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		for i := range 8000 {
			text := fmt.Sprint(i, strings.Repeat("k", 1000))
			names.Name(text[:256], text[:256])
			names.Name("api", text) // too long for a name
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if grown := heap() - before; grown > 3<<19 { // 8,000 would take 6 MB
			t.Errorf("grew by %d KB", grown>>10)
		}
		runtime.KeepAlive(names)
	})
}

func TestNamesNil(t *testing.T) {
	var names *observe.Names
	if got := names.Name("api", "k"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestNewNamesNamesTheFault(t *testing.T) {
	if _, err := observe.NewNames(nil, observe.NamesConfig{}); err == nil || !strings.Contains(err.Error(), "lookup is nil") {
		t.Errorf("error %v", err)
	}
	if _, err := observe.NewNames(new(directory).lookup, observe.NamesConfig{Timeout: -1}); err == nil || !strings.Contains(err.Error(), "NamesConfig.Timeout -1ns: must be positive") {
		t.Errorf("error %v", err)
	}
}

// A page and a log that share Names look a key up once.
func TestNamesAreShared(t *testing.T) {
	d := &directory{of: named("ACME", nil)}
	names, _ := newNames(t, d)
	var askers sync.WaitGroup
	for range 8 {
		askers.Go(func() {
			for i := range 1000 {
				names.Name("api", fmt.Sprint(i%100))
			}
		})
	}
	askers.Wait()
	for names.Name("api", "99") == "" {
		runtime.Gosched()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, n := range d.looked {
		if n != 1 {
			t.Errorf("%s: %d lookups", key, n)
		}
	}
}

// The name of a key is in its lines as soon as it is known, also where the key is hidden.
func TestDenialsAreLoggedWithNames(t *testing.T) {
	for shown, secret := range map[string][]byte{"apikey:5f": nil, "hmac:dd8a6a0e7f3aadd0": []byte("sixteen bytes or more")} {
		synctest.Test(t, func(t *testing.T) {
			names, _ := newNames(t, &directory{of: named("ACME\n", nil)})
			if secret != nil {
				shown = observe.KeyName(secret, "apikey:5f")
			}
			l := newDenialLog(observe.LogConfig{Names: names, KeySecret: secret})
			line := func(name string, notLogged int) string {
				return fmt.Sprintf(`level=INFO msg="ratelimit: denied" policy=api key=%s route="" limit=1/1m cost=1 shadow=false degraded=false denials_not_logged=%d name=%s`, shown, notLogged, name)
			}
			l.observe(t.Context(), denial("api", "apikey:5f"))
			l.want(t, line(`""`, 0))
			l.observe(t.Context(), denial("api", "apikey:5f"))
			time.Sleep(time.Minute)
			l.observe(t.Context(), denial("api", "apikey:5f"))
			l.want(t, line(`ACME\n`, 1))
		})
	}
	l := newDenialLog(observe.LogConfig{})
	l.observe(t.Context(), &ratelimit.Event{Results: []ratelimit.Result{{Policy: "api", Key: "k"}}})
	if strings.Contains(l.String(), "name=") {
		t.Errorf("a name without Names: %s", l)
	}
}
