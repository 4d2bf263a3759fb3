package code_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/outbound"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func githubClient(rdb *redis.Client) (*http.Client, error) {
	limiter, err := ratelimit.New(ratelimit.Config{
		Store: ratelimit.Must(redisstore.New(rdb, redisstore.Config{})), // shared by all replicas
	})
	if err != nil {
		return nil, err
	}
	transport, err := outbound.New(outbound.Config{
		Limiter: limiter,
		Policy: ratelimit.Policy{
			Name:    "github",
			Limit:   ratelimit.PerHour(5000),
			MaxWait: time.Minute,
		},
	})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport}
	return client, nil
}

func TestAClientOfAnAPIWithAQuota(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "90")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer web.Close()
	client, err := githubClient(redistest.Start(t).Client())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	untilInTime(func() error {
		resp, got := client.Get(web.URL)
		if err = got; err == nil {
			resp.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var later []time.Duration
	untilInTime(func() error {
		err = syncOnce(client, web.URL, func(d time.Duration) { later = append(later, d) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(later) != 1 || later[0] < 20*time.Second || later[0] > 90*time.Second {
		t.Errorf("again after %v, want one time below 90s", later)
	}
}

func syncOnce(client *http.Client, url string, again func(time.Duration)) error {
	resp, err := client.Get(url)
	var full *outbound.Error
	if errors.As(err, &full) && full.RetryAfter > 0 {
		log.Printf("no call to GitHub for %v", full.RetryAfter)
		again(full.RetryAfter)
		return nil
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// GitHub counts searches apart from all other calls.
func bySearch(r *http.Request) (string, error) {
	if strings.HasPrefix(r.URL.Path, "/search/") {
		return "quota:search", nil
	}
	return "quota:other", nil
}

func searchLimit(r *http.Request) ratelimit.Limit {
	if strings.HasPrefix(r.URL.Path, "/search/") {
		return ratelimit.PerMinute(30)
	}
	return ratelimit.PerHour(5000)
}

func TestAQuotaForEachPartOfAnAPI(t *testing.T) {
	policy := ratelimit.Policy{Name: "github", Key: ratelimit.Join(outbound.Host(), bySearch), LimitFunc: searchLimit, MaxWait: time.Nanosecond}
	transport, err := outbound.New(outbound.Config{
		Limiter: ratelimit.Must(ratelimit.New(ratelimit.Config{})),
		Policy:  policy,
		Base:    answer(func(*http.Request) http.Header { return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]int{}
	for range 40 {
		for _, path := range []string{"/search/code", "/users/1"} {
			r, _ := http.NewRequest("GET", "https://api.github.com"+path, nil)
			if _, err := transport.RoundTrip(r); err == nil {
				done[path]++
			}
		}
	}
	if done["/search/code"] != 30 || done["/users/1"] != 40 {
		t.Errorf("%v, want 30 searches and 40 others", done)
	}
}

type answer func(*http.Request) http.Header

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: f(r), Body: http.NoBody, Request: r}, nil
}

func learnUnits(resp *http.Response) (outbound.Report, bool) {
	report, ok := outbound.Headers(resp)
	if resp.Header.Get("X-Units-Left") == "none" {
		report = outbound.Report{Refused: true, RetryAfter: 10 * time.Second}
		ok = true
	}
	return report, ok
}

func TestHeadersOfYourOwnAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
		defer limiter.Close()
		transport, err := outbound.New(outbound.Config{
			Limiter: limiter,
			Policy:  ratelimit.Policy{Name: "units", Limit: ratelimit.PerSecond(100)},
			Base:    answer(func(*http.Request) http.Header { return http.Header{"X-Units-Left": {"none"}} }),
			Learn:   learnUnits,
		})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for range 3 {
			r, _ := http.NewRequestWithContext(context.Background(), "GET", "https://api.example", nil)
			if _, err := transport.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("3 calls took %v, want 20s", took)
		}
	})
}
