package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// chat answers the messages of a WebSocket, and closes it if its client sends too many.
func chat(limiter *ratelimit.Limiter, messages ratelimit.Policy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, err := messages.Key(r)
		if err != nil {
			http.Error(w, "who is it?", http.StatusForbidden)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered
		}
		defer conn.CloseNow()
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			result, err := limiter.Take(r.Context(), messages, key, 1)
			if !result.Allowed && err != nil { // only with FailClosed
				conn.Close(websocket.StatusTryAgainLater, "no decision is possible")
				return
			}
			if !result.Allowed {
				conn.Close(websocket.StatusPolicyViolation, fmt.Sprintf("too many messages: retry after %.2f s", result.RetryAfter.Seconds()+0.005))
				return
			}
			if err := conn.Write(r.Context(), kind, reply(message)); err != nil {
				return
			}
		}
	}
}

func mountChat(mux *http.ServeMux, limiter *ratelimit.Limiter, member ratelimit.KeyFunc) {
	connects := ratelimit.Policy{Name: "connects", Key: member, Limit: ratelimit.PerMinute(30).WithBurst(10)}
	messages := ratelimit.Policy{Name: "messages", Key: member, Limit: ratelimit.PerSecond(20).WithBurst(100)}
	mux.Handle("GET /chat", limiter.Limit(connects)(chat(limiter, messages)))
}

func reply(message []byte) []byte { return message }

// messagesOf is a policy for the messages of a member.
func messagesOf(limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: "messages", Key: ratelimit.Header("X-Member"), Limit: limit}
}

// dial opens a WebSocket as a member.
func dial(t *testing.T, url, member string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{"X-Member": {member}}})
	if conn != nil {
		t.Cleanup(func() { conn.CloseNow() })
	}
	return conn, resp, err
}

// talk sends a message and returns the error instead of an answer.
func talk(ctx context.Context, conn *websocket.Conn) error {
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		return err
	}
	_, answer, err := conn.Read(ctx)
	if err == nil && string(answer) != "hello" {
		return fmt.Errorf("the answer is %q", answer)
	}
	return err
}

// wantClosed checks that a connection was closed with a code, and a reason that begins so.
func wantClosed(t *testing.T, err error, code websocket.StatusCode, reason string) {
	t.Helper()
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != code || !strings.HasPrefix(closed.Reason, reason) {
		t.Errorf("error %v, want a close with %v and %q", err, code, reason)
	}
}

// The bucket is that of the member: neither another connection nor a new one brings more messages.
func TestAWebSocketWithTooManyMessagesIsClosed(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{})
	url := serve(t, chat(l, messagesOf(ratelimit.PerHour(5))))
	connect := func(member string) *websocket.Conn {
		conn, _, err := dial(t, url, member)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, second := connect("ann"), connect("ann")
	for i, conn := range []*websocket.Conn{first, second, first, second, first} {
		if err := talk(t.Context(), conn); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
	}
	wantClosed(t, talk(t.Context(), first), websocket.StatusPolicyViolation, "too many messages: retry after 7")
	wantClosed(t, talk(t.Context(), second), websocket.StatusPolicyViolation, "too many messages: retry after 7")
	wantClosed(t, talk(t.Context(), connect("ann")), websocket.StatusPolicyViolation, "too many messages: retry after 7")
	if err := talk(t.Context(), connect("bob")); err != nil {
		t.Errorf("another member: %v", err)
	}
	if _, resp, err := dial(t, url, ""); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("nobody: %v", err)
	}
}

// A handshake counts under a limit of its own, and is answered like any other request.
func TestHandshakesAreLimited(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mountChat(mux, newLimiter(t, ratelimit.Config{}), ratelimit.Header("X-Member"))
	url := serve(t, mux) + "/chat"
	for range 10 {
		conn, resp, err := dial(t, url, "ann")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("X-RateLimit-Limit") != "10" {
			t.Errorf("the handshake is answered with %v", resp.Header)
		}
		if err := talk(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	}
	if _, resp, err := dial(t, url, "ann"); err == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the eleventh handshake: %v", err)
	}
}

// The handler ends with the connection, and a Settle of the handshake is called then.
func TestAHandshakeSettlesAtTheEndOfItsWebSocket(t *testing.T) {
	t.Parallel()
	settled := make(chan ratelimit.Response, 1)
	connects := ratelimit.Policy{
		Name:  "connects",
		Key:   ratelimit.Header("X-Member"),
		Limit: ratelimit.PerHour(5),
		Settle: func(_ *http.Request, response ratelimit.Response) int64 {
			settled <- response
			return 1
		},
	}
	l := newLimiter(t, ratelimit.Config{})
	conn, _, err := dial(t, serve(t, l.Limit(connects)(chat(l, messagesOf(ratelimit.PerHour(5))))), "ann")
	if err != nil {
		t.Fatal(err)
	}
	if err := talk(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if len(settled) > 0 {
		t.Error("it is settled while the connection is open")
	}
	conn.CloseNow()
	select {
	case response := <-settled:
		if !response.Hijacked {
			t.Errorf("settled by %+v", response)
		}
	case <-time.After(10 * time.Second):
		t.Error("the handler has not returned after its client has left")
	}
}

func TestAWebSocketWithoutAStore(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Store: broken{}})
	open := messagesOf(ratelimit.PerHour(1))
	closed := open
	closed.FailClosed = true
	conn, _, err := dial(t, serve(t, chat(l, open)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := talk(t.Context(), conn); err != nil {
			t.Errorf("without FailClosed: %v", err)
		}
	}
	conn, _, err = dial(t, serve(t, chat(l, closed)), "ann")
	if err != nil {
		t.Fatal(err)
	}
	wantClosed(t, talk(t.Context(), conn), websocket.StatusTryAgainLater, "no decision")
}

// A message is not a round trip: a lease pays for many of them.
func TestRoundTripsOfWebSockets(t *testing.T) {
	t.Parallel()
	const members, each = 10, 500
	server := redistest.Start(t)
	l := newLimiter(t, ratelimit.Config{Store: leased(t, server)})
	url := serve(t, chat(l, messagesOf(ratelimit.PerSecond(100).WithBurst(1000))))
	var talking sync.WaitGroup
	for i := range members {
		conn, _, err := dial(t, url, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		talking.Go(func() {
			for n := range each {
				if err := talk(t.Context(), conn); err != nil {
					t.Errorf("member %d, message %d: %v", i, n+1, err)
					return
				}
			}
		})
	}
	talking.Wait()
	calls := scriptCalls(t, server)
	t.Logf("%d script calls for %d messages", calls, members*each)
	if calls == 0 || calls > members*each/20 {
		t.Errorf("%d script calls for %d messages, want at most a twentieth", calls, members*each)
	}
}

// leased returns a store that leases tokens of buckets in server.
func leased(t *testing.T, server *redistest.Server) store.Store {
	buckets := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	leases := ratelimit.Must(lease.New(buckets, lease.Config{Fraction: 0.2, Hold: 5 * time.Second}))
	t.Cleanup(func() { leases.Close(); buckets.Close() })
	return leases
}

// scriptCalls returns how many scripts server has run.
func scriptCalls(t *testing.T, server *redistest.Server) (calls int) {
	t.Helper()
	stats, ok := server.Do("INFO", "commandstats").(string)
	if !ok {
		t.Fatal("no command statistics")
	}
	for line := range strings.Lines(stats) {
		var n int
		name, rest, _ := strings.Cut(line, ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		if _, err := fmt.Sscanf(rest, "calls=%d,", &n); err != nil {
			t.Fatal(err)
		}
		calls += n
	}
	return calls
}
