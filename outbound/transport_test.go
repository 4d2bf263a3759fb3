package outbound_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/outbound"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestMain(m *testing.M) {
	if callHere() {
		return
	}
	goleak.VerifyTestMain(m)
}

// A server is a RoundTripper that answers with the header of its last use, and notes when it was called.
type server struct {
	answer func(n int, r *http.Request) (status int, header []string) // names and values in turn

	mu    sync.Mutex
	calls []time.Time
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	resp := &http.Response{StatusCode: 200, Header: make(http.Header), Body: http.NoBody, Request: r}
	if s.answer != nil {
		var header []string
		resp.StatusCode, header = s.answer(len(s.calls), r)
		for i := 0; i < len(header); i += 2 {
			resp.Header.Add(header[i], header[i+1])
		}
	}
	return resp, nil
}

// since returns when calls came, counted from begin.
func (s *server) since(begin time.Time) (after []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.calls {
		after = append(after, at.Sub(begin))
	}
	return after
}

func always(status int, header ...string) func(int, *http.Request) (int, []string) {
	return func(int, *http.Request) (int, []string) { return status, header }
}

// run runs test in a bubble, with a function that makes a replica: they share a store.
func run(t *testing.T, test func(t *testing.T, replica func(outbound.Config) *http.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, when Unix time had nine digits
		s := ratelimit.Must(memstore.New(memstore.Config{}))
		defer s.Close()
		test(t, func(cfg outbound.Config) *http.Client {
			if cfg.Limiter == nil {
				cfg.Limiter = ratelimit.Must(ratelimit.New(ratelimit.Config{Store: s}))
			}
			cfg.Policy.Name = "api"
			transport, err := outbound.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return &http.Client{Transport: transport}
		})
	})
}

func call(t *testing.T, c *http.Client) {
	t.Helper()
	resp, err := c.Get("https://api.example")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func wantBetween(t *testing.T, what string, got, from, to time.Duration) {
	t.Helper()
	if got < from || got > to {
		t.Errorf("%s after %v, want %v to %v", what, got, from, to)
	}
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{}
		a := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, Base: s})
		b := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, Base: s})
		begin := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { call(t, a) })
			all.Go(func() { call(t, b) })
		}
		all.Wait()
		for i, at := range s.since(begin) {
			turn := max(0, time.Duration(i-9)*100*time.Millisecond)
			wantBetween(t, "call "+strconv.Itoa(i), at, turn, turn+time.Millisecond)
		}
	})
}

func TestTheBucketHoldsNoMoreThanIsLeft(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			return 200, []string{"X-RateLimit-Remaining", strconv.Itoa(max(0, 4-n))}
		}}
		policy := ratelimit.Policy{Limit: ratelimit.PerMinute(60)}
		a, b := replica(outbound.Config{Policy: policy, Base: s}), replica(outbound.Config{Policy: policy, Base: s})
		begin := time.Now()
		for range 3 {
			call(t, a)
			call(t, b)
		}
		calls := s.since(begin)
		wantBetween(t, "the third call", calls[2], 0, 0)
		wantBetween(t, "the fifth call", calls[4], time.Second, 3*time.Second)
	})
}

// Whatever a server says, it does not lift the limit.
func TestNothingLiftsTheLimit(t *testing.T) {
	for _, header := range [][]string{
		{"X-RateLimit-Remaining", "1000000000000000", "X-RateLimit-Reset", "0"},
		{"X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "-9223372036854775808"},
		{"X-RateLimit-Remaining", "99999999999999999999", "X-RateLimit-Reset", "999999999999999"},
		{"RateLimit", `"a";r=999999999999999;t=999999999999999`},
		{"Retry-After", "999999999999999"}, // of a 200
		{"X-RateLimit-Remaining", "1e3", "X-RateLimit-Reset", "NaN"},
	} {
		run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
			s := &server{answer: always(200, header...)}
			c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, Base: s})
			begin := time.Now()
			for range 110 {
				call(t, c)
			}
			if took := time.Since(begin); took < 10*time.Second || took > 12*time.Second {
				t.Errorf("%q: 110 calls took %v, want 10s", header, took)
			}
		})
	}
}

func TestARefusalStopsAllReplicas(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		var refused atomic.Bool
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			if n >= 30 && refused.CompareAndSwap(false, true) {
				return 429, []string{"Retry-After", "20"}
			}
			return 200, nil
		}}
		cfg := outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(10)}, Base: s}
		begin := time.Now()
		var all sync.WaitGroup
		for range 5 {
			c := replica(cfg)
			for range 20 {
				all.Go(func() { call(t, c) })
			}
		}
		all.Wait()
		calls := s.since(begin)
		if len(calls) != 100 {
			t.Fatalf("%d calls, want 100", len(calls))
		}
		// Calls that had been sent when the answer came do not count: in a bubble there are none.
		wantBetween(t, "the call after the refusal", calls[30]-calls[29], 20*time.Second, 20200*time.Millisecond)
		wantBetween(t, "the last call", calls[99]-calls[30], 6300*time.Millisecond, 7300*time.Millisecond) // no burst
	})
}

// 40 responses that refuse at the same time are one stop.
func TestRefusalsAtTheSameTimeAreOneStop(t *testing.T) {
	for _, c := range []struct {
		header []string
		stop   time.Duration
	}{{[]string{"Retry-After", "3"}, 3 * time.Second}, {nil, time.Second}} {
		run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
			s := &server{answer: func(n int, _ *http.Request) (int, []string) {
				if n <= 40 {
					return 429, c.header
				}
				return 200, nil
			}}
			slow := roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := s.RoundTrip(r)
				time.Sleep(time.Second)
				return resp, err
			})
			policy := ratelimit.Policy{Limit: ratelimit.PerSecond(1000)}
			var all sync.WaitGroup
			begin := time.Now()
			for range 4 {
				c := replica(outbound.Config{Policy: policy, Base: slow})
				for range 10 {
					all.Go(func() { call(t, c) })
				}
			}
			all.Wait()
			call(t, replica(outbound.Config{Policy: policy, Base: s}))
			wantBetween(t, "the call after the stop", s.since(begin)[40], time.Second+c.stop, time.Second+c.stop+100*time.Millisecond)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestStops(t *testing.T) {
	in := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for _, c := range []struct {
		name   string
		status int
		header func() []string
		stops  []time.Duration // one after another, at most
	}{
		{"429 with seconds", 429, func() []string { return []string{"Retry-After", "7"} }, []time.Duration{7 * time.Second}},
		{"429 with a date", 429, func() []string {
			return []string{"Retry-After", time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat)}
		}, []time.Duration{7 * time.Second}},
		{"429 without a time", 429, func() []string { return nil }, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 60e9, 60e9}},
		{"429 with a malformed time", 429, func() []string { return []string{"Retry-After", "soon"} }, []time.Duration{1e9, 2e9}},
		{"429 with the end of the window", 429, func() []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(9 * time.Second)}
		}, []time.Duration{9 * time.Second}},
		{"403 with Retry-After", 403, func() []string {
			return []string{"Retry-After", "60", "X-RateLimit-Remaining", "4000", "X-RateLimit-Reset", in(time.Hour)}
		}, []time.Duration{time.Minute}},
		{"403 with nothing left", 403, func() []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", in(9 * time.Second)}
		}, []time.Duration{9 * time.Second}},
		{"403 for another reason", 403, func() []string {
			return []string{"X-RateLimit-Remaining", "4000", "X-RateLimit-Reset", in(time.Hour)}
		}, []time.Duration{0}},
		{"503 with Retry-After", 503, func() []string { return []string{"Retry-After", "5"} }, []time.Duration{5 * time.Second}},
		{"503 without", 503, func() []string { return nil }, []time.Duration{0}},
		{"a year", 429, func() []string { return []string{"Retry-After", "31536000"} }, []time.Duration{time.Hour}},
		{"for ever", 429, func() []string { return []string{"Retry-After", "999999999999999"} }, []time.Duration{time.Hour}},
		{"before", 429, func() []string { return []string{"Retry-After", "Mon, 01 Jan 1990 00:00:00 GMT"} }, []time.Duration{time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
				s := &server{}
				cfg := outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(1000)}, Base: s}
				a, b := replica(cfg), replica(cfg)
				for _, stop := range c.stops {
					s.answer = func(int, *http.Request) (int, []string) { return c.status, c.header() }
					call(t, a)
					refused := time.Now()
					s.answer = nil
					// b learns of it only by the store.
					if _, err := b.Do(request(t, time.Millisecond)); (err != nil) != (stop > 0) {
						t.Fatalf("a call in a stop of %v: %v", stop, err)
					}
					time.Sleep(stop - 2*time.Millisecond - time.Since(refused))
					for _, c := range []*http.Client{a, b} {
						_, err := c.Do(request(t, time.Millisecond))
						var failed *outbound.Error
						if stop > 0 && (!errors.As(err, &failed) || failed.RetryAfter <= 0 || failed.RetryAfter > 3*time.Millisecond) {
							t.Errorf("a call before the end of a stop of %v: %v", stop, err)
						}
					}
					time.Sleep(4 * time.Millisecond)
					if _, err := b.Do(request(t, 5*time.Millisecond)); err != nil {
						t.Errorf("a call after a stop of %v: %v", stop, err)
					}
				}
			})
		})
	}
}

// Also those whose responses come one after another, when the stop is over.
func TestRefusalsOfSlowCallsAreOneStop(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			if n <= 7 {
				return 429, nil
			}
			return 200, nil
		}}
		var n atomic.Int64
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(time.Duration(n.Add(1)) * 1100 * time.Millisecond)
			return s.RoundTrip(r)
		})
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(1000)}, Base: slow})
		begin := time.Now()
		var all sync.WaitGroup
		for range 7 {
			all.Go(func() { call(t, c) })
		}
		all.Wait()
		call(t, c)
		wantBetween(t, "the next call", s.since(begin)[7], 7700*time.Millisecond, 7800*time.Millisecond)
	})
}

// After a call that is not refused, refusals without a time begin at a second again.
func TestRefusalsAfterASuccessBeginAnew(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			if n == 3 {
				return 200, nil
			}
			return 429, nil
		}}
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(1000)}, Base: s})
		begin := time.Now()
		for range 5 {
			call(t, c)
		}
		calls := s.since(begin)
		wantBetween(t, "the second call", calls[1], time.Second, 1010*time.Millisecond)
		wantBetween(t, "the third call", calls[2], 3*time.Second, 3020*time.Millisecond)
		wantBetween(t, "the last call", calls[4], 4*time.Second, 4030*time.Millisecond)
	})
}

// A window that is fixed ends when it was said to end, however little is used.
func TestNothingIsSentUntilTheWindowEnds(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		end := time.Now().Add(time.Minute)
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			left := 20 - n
			if time.Until(end) <= 0 {
				end, left = end.Add(time.Minute), 100
			}
			return 200, []string{"X-RateLimit-Remaining", strconv.Itoa(max(0, left)), "X-RateLimit-Reset", strconv.FormatInt(end.Unix(), 10)}
		}}
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(50 * time.Millisecond)
			return s.RoundTrip(r)
		})
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerMinute(100)}, Base: slow})
		begin := time.Now()
		for range 20 {
			call(t, c)
		}
		call(t, c)
		calls := s.since(begin)
		wantBetween(t, "the last call but two", calls[18], 0, 59*time.Second)
		wantBetween(t, "the call after the last one that was left", calls[20], time.Minute, 62*time.Second)
	})
}

// Learning the end of the window does not take the burst away.
func TestAWindowKeepsItsBurst(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		end := strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10)
		s := &server{answer: func(n int, _ *http.Request) (int, []string) {
			return 200, []string{"X-RateLimit-Remaining", strconv.Itoa(100 - n), "X-RateLimit-Reset", end}
		}}
		slow := roundTripper(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(50 * time.Millisecond)
			return s.RoundTrip(r)
		})
		c := replica(outbound.Config{Policy: ratelimit.Policy{Limit: ratelimit.PerMinute(100)}, Base: slow})
		begin := time.Now()
		for range 95 {
			call(t, c)
		}
		wantBetween(t, "the 95th call", time.Since(begin), 0, 5*time.Second)
	})
}

// A brokenStore fails when it is told to.
type brokenStore struct {
	store.Store
	broken atomic.Bool
}

func (s *brokenStore) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	if s.broken.Load() {
		return false, errors.New("no connection")
	}
	return s.Store.Take(ctx, charges, states)
}

func TestWithoutTheStore(t *testing.T) {
	for _, closed := range []bool{false, true} {
		run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
			memory := ratelimit.Must(memstore.New(memstore.Config{}))
			defer memory.Close()
			broken := &brokenStore{Store: memory}
			s := &server{answer: always(429, "Retry-After", "30")}
			limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: broken, Logger: slog.New(slog.DiscardHandler)}))
			c := replica(outbound.Config{Limiter: limiter, Policy: ratelimit.Policy{Limit: ratelimit.PerSecond(1), FailClosed: closed}, Base: s})
			begin := time.Now()
			call(t, c)
			s.answer = nil
			broken.broken.Store(true)
			if closed {
				time.Sleep(30 * time.Second)
				_, err := c.Get("https://api.example")
				var failed *outbound.Error
				if !errors.As(err, &failed) || failed.Err == nil || !strings.Contains(err.Error(), "no connection") {
					t.Errorf("error %v, want the store's", err)
				}
				return
			}
			for range 10 {
				call(t, c)
			}
			for i, at := range s.since(begin)[1:] {
				wantBetween(t, "call "+strconv.Itoa(i), at, 30*time.Second, 30*time.Second)
			}
		})
	}
}

func TestFunctionsOfThePolicy(t *testing.T) {
	run(t, func(t *testing.T, replica func(outbound.Config) *http.Client) {
		s := &server{}
		c := replica(outbound.Config{Base: s, Policy: ratelimit.Policy{
			Key:      func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }, // an empty key is none
			Optional: true,
			Limit:    ratelimit.PerHour(10),
			LimitFunc: func(r *http.Request) ratelimit.Limit {
				switch r.Header.Get("Tenant") {
				case "large":
					return ratelimit.PerHour(20)
				case "own":
					return ratelimit.Unlimited
				case "closed":
					return ratelimit.PerHour(0)
				case "calendar":
					return ratelimit.Quota(20, ratelimit.Hour)
				case "empty calendar":
					return ratelimit.Quota(0, ratelimit.Hour)
				}
				return ratelimit.Limit{}
			},
			Cost: func(r *http.Request) int64 {
				if r.Method == "HEAD" {
					return 0
				}
				return 5
			},
			MaxWait: time.Nanosecond,
		}})
		for _, want := range []struct {
			tenant, method string
			calls          int
		}{{"small", "GET", 2}, {"large", "GET", 4}, {"small", "HEAD", 9}, {"own", "GET", 9}, {"", "GET", 9}, {"closed", "GET", 0}, {"calendar", "GET", 0}, {"empty calendar", "GET", 0}} {
			done := 0
			for range 9 {
				r, _ := http.NewRequest(want.method, "https://api.example", nil)
				if want.tenant != "" {
					r.Header.Set("Tenant", want.tenant)
				}
				_, err := c.Do(r)
				if err == nil {
					done++
				}
				if want.tenant == "calendar" && !strings.Contains(err.Error(), "LimitFunc returned 20 per hour: must return a rate, and no calendar quota or concurrency limit") {
					t.Errorf("a calendar quota: %v", err)
				}
			}
			if done != want.calls {
				t.Errorf("%s %q: %d calls, want %d", want.method, want.tenant, done, want.calls)
			}
		}
	})
}

func TestHostsAreCountedApart(t *testing.T) {
	key := outbound.Host()
	for url, want := range map[string]string{
		"https://api.example/a?b":            "host:api.example",
		"https://API.Example:443/":           "host:api.example",
		"https://api.example:/":              "host:api.example",
		"https://api.example:0443/":          "host:api.example",
		"https://api.example./":              "host:api.example",
		"https://api.example.:443/":          "host:api.example",
		"https://ａｐｉ．example/":               "host:api.example",
		"https://API.example。/":              "host:api.example",
		"https://a\u00adpi.exa%E2%84%B3ple/": "host:api.example",
		"http://api.example:80":              "host:api.example",
		"http://api.example:443":             "host:api.example:443",
		"http://api.example:00000000443":     "host:api.example:443",
		"https://my_service:8080":            "host:my_service:8080",
		"https://Bücher.example":             "host:xn--bcher-kva.example",
		"https://XN--bcher-KVA.example":      "host:xn--bcher-kva.example",
		"https://192.0.2.1":                  "host:192.0.2.1",
		"https://192.0.2.1.":                 "host:192.0.2.1",
		"https://１９２.0.2.1":                  "host:192.0.2.1",
		"https://[::ffff:192.0.2.1]":         "host:192.0.2.1",
		"https://[::ffff:c000:201]:8443":     "host:192.0.2.1:8443",
		"https://[2001:DB8::1]:443":          "host:2001:db8::1",
		"https://[2001:db8:0:0::0001]":       "host:2001:db8::1",
		"https://[fe80::1%25eth0]":           "host:fe80::1",
		"https://[fe80::1%25eth1]:443":       "host:fe80::1",
		"https://[::1]:8080/":                "host:[::1]:8080",
	} {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "other.example"
		if got, err := key(r); got != want || err != nil {
			t.Errorf("%s: key %q, error %v, want %q", url, got, err, want)
		}
		if got, err := key(ratelimit.Must(http.NewRequest("GET", r.URL.Scheme+"://"+dialed(r), nil))); got != want || err != nil {
			t.Errorf("%s is dialed as %s: key %q, error %v, want %q", url, dialed(r), got, err, want)
		}
	}
	if _, err := key(&http.Request{URL: ratelimit.Must(http.NewRequest("GET", "/", nil)).URL}); !errors.Is(err, ratelimit.ErrNoKey) {
		t.Errorf("without a host: error %v, want ErrNoKey", err)
	}
	for _, host := range []string{"api.example:65536", "api.example:4294967739", "ａ／b.example"} {
		got, err := key(&http.Request{URL: &url.URL{Scheme: "https", Host: host}})
		if got != "" || err == nil || errors.Is(err, ratelimit.ErrNoKey) || !strings.Contains(err.Error(), strconv.Quote(host)) {
			t.Errorf("%q: key %q, error %v, want one that names the host", host, got, err)
		}
	}
}

// dialed returns the address that net/http dials for r, without the zone.
func dialed(r *http.Request) (addr string) {
	base := http.Transport{DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
		host, port, _ := net.SplitHostPort(to)
		host, _, _ = strings.Cut(host, "%")
		addr = net.JoinHostPort(host, port)
		return nil, io.EOF
	}}
	_, _ = base.RoundTrip(r)
	return addr
}

func TestNewNamesEveryWrongField(t *testing.T) {
	_, err := outbound.New(outbound.Config{
		Policy:  ratelimit.Policy{Shadow: true, Settle: ratelimit.FailedLogins},
		MaxStop: -1,
	})
	for _, field := range []string{"Config.Limiter", "Config.Policy", "Name", "Limit:", "Shadow", "Settle", "MaxStop"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	for _, limit := range []ratelimit.Limit{ratelimit.Quota(5000, ratelimit.Month), ratelimit.Concurrency(3)} {
		p := ratelimit.Policy{Name: "api", Limit: limit}
		if _, err := outbound.New(outbound.Config{Limiter: limiter, Policy: p}); err == nil || !strings.Contains(err.Error(), "Config.Policy: Limit "+limit.String()+": must be a rate, such as PerHour(5000)") {
			t.Errorf("%v: %v", limit, err)
		}
	}
	long := ratelimit.Policy{Name: strings.Repeat("n", 54), Limit: ratelimit.PerHour(1)}
	if _, err := outbound.New(outbound.Config{Limiter: limiter, Policy: long}); err == nil || !strings.Contains(err.Error(), "53 bytes") {
		t.Errorf("a name of 54 bytes: %v", err)
	}
	long.Name = long.Name[:53]
	if _, err := outbound.New(outbound.Config{Limiter: limiter, Policy: long}); err != nil {
		t.Errorf("a name of 53 bytes: %v", err)
	}
}
