package code_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/ratetest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func limiterWithLeases(client redis.UniversalClient) (*ratelimit.Limiter, func()) {
	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	leases := ratelimit.Must(lease.New(buckets, lease.Config{Fraction: 0.2, Hold: 5 * time.Second}))
	limiter, err := ratelimit.New(ratelimit.Config{Store: leases})
	if err != nil {
		log.Fatal(err)
	}
	return limiter, func() {
		limiter.Close()
		leases.Close() // gives back the tokens that were not spent
		buckets.Close()
	}
}

// A lastLine ends a stream whose client has sent too many lines.
type lastLine struct {
	Code       string `json:"code"`
	RetryAfter int64  `json:"retryAfter"` // seconds
}

// ingest reads JSON values, one a line, and answers each with a line.
func ingest(limiter *ratelimit.Limiter, messages ratelimit.Policy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := messages.Key(r)
		if err != nil {
			http.Error(w, "who is it?", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		stream := http.NewResponseController(w)
		stream.EnableFullDuplex() // otherwise HTTP/1.1 cannot read on after the first answer
		answer := json.NewEncoder(w)
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			result, err := limiter.Take(r.Context(), messages, key, 1)
			if !result.Allowed && err != nil { // only with FailClosed
				answer.Encode(lastLine{Code: "UNAVAILABLE", RetryAfter: 1})
				return
			}
			if !result.Allowed {
				answer.Encode(lastLine{Code: "RESOURCE_EXHAUSTED", RetryAfter: int64(math.Ceil(result.RetryAfter.Seconds()))})
				return
			}
			answer.Encode(handle(lines.Bytes()))
			if stream.Flush() != nil {
				return
			}
		}
	}
}

// sendEvents sends what comes, until the client has had too many events.
func sendEvents(w http.ResponseWriter, r *http.Request, limiter *ratelimit.Limiter, perMember ratelimit.Charge, events <-chan string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for event := range events {
		result, _ := limiter.Take(r.Context(), perMember.Policy, perMember.Key, 1)
		if !result.Allowed {
			again := max(result.RetryAfter, time.Second)
			fmt.Fprintf(w, "retry: %d\nevent: limit\ndata: RESOURCE_EXHAUSTED\n\n", again.Milliseconds())
			return
		}
		fmt.Fprintf(w, "data: %s\n\n", event)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
	}
}

// pace takes a token for a message, and waits until there is one.
func pace(ctx context.Context, limiter *ratelimit.Limiter, messages ratelimit.Policy, key string) error {
	for {
		result, err := limiter.Take(ctx, messages, key, 1)
		if result.Allowed {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(result.RetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func handle(line []byte) any { return map[string]int{"bytes": len(line)} }

func TestStreamEndsWithResourceExhausted(t *testing.T) {
	limiter, closeAll := limiterWithLeases(redis.NewClient(ratelimit.Must(redisstore.Options("redis://" + miniredis.RunT(t).Addr()))))
	defer closeAll()
	messages := ratelimit.Policy{Name: "messages", Key: ratelimit.RemoteIP(), Limit: ratelimit.Every(time.Hour).WithBurst(5)}
	for i, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		messages.Name = fmt.Sprint("messages-", i)
		server := httptest.NewUnstartedServer(ingest(limiter, messages))
		server.EnableHTTP2 = version == "HTTP/2.0"
		server.StartTLS()
		defer server.Close()

		lines, send := io.Pipe()
		defer send.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL, lines)
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(send, "{}\n")
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Proto != version {
			t.Errorf("%s, want %s", resp.Proto, version)
		}
		answers := bufio.NewScanner(resp.Body)
		for i := range 5 {
			if !answers.Scan() || answers.Text() != `{"bytes":2}` {
				t.Fatalf("%s: line %d is answered with %q", version, i+1, answers.Text())
			}
			go io.WriteString(send, "{}\n")
		}
		if !answers.Scan() || answers.Text() != `{"code":"RESOURCE_EXHAUSTED","retryAfter":3600}` || answers.Scan() {
			t.Errorf("%s: the last line is %q", version, answers.Text())
		}
	}
}

func TestEventsEndWithResourceExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan string, 9)
		for i := range cap(events) {
			events <- fmt.Sprint(i)
		}
		w := httptest.NewRecorder()
		perMember := ratelimit.Charge{Policy: ratelimit.Policy{Name: "events", Limit: ratelimit.Every(3 * time.Second).WithBurst(2)}, Key: "member:5"}
		sendEvents(w, httptest.NewRequest("GET", "/", nil), ratetest.Quiet(t), perMember, events)
		if want := "data: 0\n\ndata: 1\n\nretry: 3000\nevent: limit\ndata: RESOURCE_EXHAUSTED\n\n"; w.Body.String() != want {
			t.Errorf("%q, want %q", w.Body, want)
		}
	})
}

func TestPaceSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := ratetest.Quiet(t)
		messages := ratelimit.Policy{Name: "messages", Limit: ratelimit.PerSecond(10)}
		begin := time.Now()
		for range 25 {
			if err := pace(t.Context(), limiter, messages, "member:5"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 1500*time.Millisecond {
			t.Errorf("25 messages took %v, want 1.5s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := pace(ctx, limiter, messages, "member:5"); err == nil {
			t.Error("it goes on after its context has ended")
		}
	})
}

// A counted store counts its calls, each of which is a round trip to Redis.
type counted struct {
	store.Store
	calls atomic.Int64
}

func (c *counted) Take(ctx context.Context, charges []store.Charge, states []store.State) (bool, error) {
	c.calls.Add(1)
	time.Sleep(time.Millisecond)
	return c.Store.Take(ctx, charges, states)
}

// roundTrips returns how many calls of the store a client's messages need. Each comes up to half of the time between two
// too late.
func roundTrips(t *testing.T, limit ratelimit.Limit, cfg lease.Config, messages, perSecond int) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		buckets := &counted{Store: ratelimit.Must(memstore.New(memstore.Config{}))}
		leases := ratelimit.Must(lease.New(buckets, cfg))
		limiter := ratetest.NewLimiter(t, ratelimit.Config{Store: leases})
		policy := ratelimit.Policy{Name: "messages", Limit: limit}
		begin, late := time.Now(), rand.New(rand.NewPCG(1, 2))
		for i := range messages {
			at := (float64(i) + late.Float64()/2) / float64(perSecond)
			time.Sleep(time.Until(begin.Add(time.Duration(at * float64(time.Second)))))
			if r, err := limiter.Take(t.Context(), policy, "member:5", 1); err != nil || !r.Allowed {
				t.Fatalf("%v: message %d: %+v, %v", limit, i, r, err)
			}
		}
		leases.Close()
		calls = int(buckets.calls.Load())
	})
	return calls
}

var rowOfRoundTrips = regexp.MustCompile("^\\| (\\d+) \\| `([^`]+)` \\| (\\d+) \\| (\\d+) \\|$")

// The table of docs/connections.md has what 1,000 messages need. Goroutines that run at the same time make the numbers
// vary a little.
func TestRoundTripsOfConnections(t *testing.T) {
	rows := 0
	for _, line := range readDocument(t, "docs/connections.md").lines {
		row := rowOfRoundTrips.FindStringSubmatch(strings.ReplaceAll(line, ",", ""))
		if row == nil {
			continue
		}
		rows++
		var limit ratelimit.Limit
		if err := limit.UnmarshalText([]byte(row[2])); err != nil {
			t.Fatal(err)
		}
		perSecond := ratelimit.Must(strconv.Atoi(row[1]))
		for i, cfg := range []lease.Config{{}, {Fraction: 0.2, Hold: 5 * time.Second}} {
			want := ratelimit.Must(strconv.Atoi(row[3+i]))
			if calls := roundTrips(t, limit, cfg, 1000, perSecond); calls > want+want/20+1 || calls < want-want/20-1 {
				t.Errorf("%s: %d calls, column %d says %d", line, calls, i+3, want)
			}
		}
	}
	if rows != 6 {
		t.Errorf("the table has %d rows, want 6", rows)
	}
}
