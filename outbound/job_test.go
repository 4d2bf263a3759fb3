package outbound_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/outbound"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A job is what a process of these tests is told: to call URL as often as it may.
type job struct {
	Redis, URL string
	Limit      ratelimit.Limit
	Callers    int
	From, To   time.Time
}

const jobEnv = "OUTBOUND_TEST_JOB"

// callHere makes this process one of those, if it was started as such.
func callHere() bool {
	text := os.Getenv(jobEnv)
	if text == "" {
		return false
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		panic(err)
	}
	if err := j.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func (j job) run() error {
	rdb := redis.NewClient(&redis.Options{Addr: j.Redis})
	defer rdb.Close()
	limiter, err := ratelimit.New(ratelimit.Config{
		Store:   ratelimit.Must(redisstore.New(rdb, redisstore.Config{})),
		Timeout: 5 * time.Second, // the machine may be busy
	})
	if err != nil {
		return err
	}
	policy := ratelimit.Policy{Name: "api", Limit: j.Limit}
	if _, err := limiter.Peek(context.Background(), policy, "host:connect"); err != nil {
		return err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = j.Callers
	transport, err := outbound.New(outbound.Config{Limiter: limiter, Policy: policy, Base: base})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithDeadline(context.Background(), j.To)
	defer cancel()
	time.Sleep(time.Until(j.From))
	var callers sync.WaitGroup
	var failure atomic.Value
	for range j.Callers {
		callers.Go(func() {
			for {
				r, err := http.NewRequestWithContext(ctx, "GET", j.URL, nil)
				if err != nil {
					panic(err)
				}
				resp, err := client.Do(r)
				if err != nil {
					if time.Until(j.To) > 10*time.Second {
						failure.Store(err)
					}
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	callers.Wait()
	err, _ = failure.Load().(error)
	return err
}
