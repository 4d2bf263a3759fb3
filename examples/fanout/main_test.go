package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

// A sent records when a sender began its messages.
type sent struct {
	start time.Time
	to    map[string][]time.Duration
	all   []time.Duration
}

func (s *sent) Write(p []byte) (int, error) {
	var tenant string
	if n, _ := fmt.Sscanf(string(p), "begin %s", &tenant); n == 1 {
		s.to[tenant] = append(s.to[tenant], time.Since(s.start))
		s.all = append(s.all, time.Since(s.start))
	}
	return len(p), nil
}

// A tenant with many messages gets what the others leave, and they do not wait behind it.
func TestFanOutSharesTheLimitOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer limiter.Close()
		out := &sent{start: time.Now(), to: make(map[string][]time.Duration)}
		s := &sender{
			limiter:  limiter,
			tenant:   tenantPolicy(ratelimit.PerSecond(5)),
			provider: providerPolicy(ratelimit.PerSecond(10)),
			log:      log.New(out, "", 0),
		}
		messages := map[string]int{"large": 60, "medium": 20, "small": 6}
		if left := s.fanOut(t.Context(), messages); left != 0 {
			t.Errorf("%d messages are left", left)
		}
		for tenant, n := range messages {
			if len(out.to[tenant]) != n {
				t.Errorf("%s got %d messages, want %d", tenant, len(out.to[tenant]), n)
			}
			within(t, tenant, out.to[tenant], 5, 0)
		}
		// The tokens of the provider are reserved when a message begins to wait for those of its tenant.
		// So there may be one more for each other tenant.
		within(t, "all", out.all, 10, 2)
		for tenant, most := range map[string]time.Duration{"large": 11 * time.Second, "medium": 5 * time.Second, "small": 1 * time.Second} {
			if took := out.to[tenant][messages[tenant]-1]; took > most {
				t.Errorf("%s had its messages after %v, want at most %v", tenant, took, most)
			}
		}
	})
}

// within checks that in any period there were no more than rate a second, one second's worth at once, and some more.
func within(t *testing.T, name string, times []time.Duration, rate, more float64) {
	t.Helper()
	for i := range times {
		for j := i; j < len(times); j++ {
			if n, most := float64(j-i+1), rate+rate*(times[j]-times[i]).Seconds()+more; n > most+1e-6 {
				t.Errorf("%s: %.0f messages from %v to %v, want at most %.1f", name, n, times[i], times[j], most)
				return
			}
		}
	}
}

func TestFanOutInMemory(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-messages", "10", "-tenant", "20/1s"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Limits: 20/1s for each tenant, 10/1s for all", "done large 9", "done medium 2", "done small 0", "stopped, 0 messages left"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, out.String())
		}
	}
}

func TestFanOutArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"-redis":              {"-redis", "http://a"},
		"-tenant":             {"-tenant", "many"},
		"not defined":         {"-unknown"},
		"unexpected argument": {"more"},
		"refused":             {"-redis", "redis://127.0.0.1:1"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v", args, err)
		}
	}
}
