package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestCallersThatLeaveBeforeTheirCallIsSentAreNotCharged(t *testing.T) {
	const leavers = 1000
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr, o.ReadTimeout = proxy.Addr(), time.Minute })
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxInFlight: 1, MaxDenials: -1}))
	var log bytes.Buffer
	l, err := ratelimit.New(ratelimit.Config{Store: s, Timeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	policy := ratelimit.Policy{Name: "work", Limit: ratelimit.PerHour(100)}
	shared := charge(t, "shared")
	shared.Limit = limit(t, 1, time.Hour, 5000)
	take(t, s, shared)

	proxy.Delay(time.Minute)
	first := make(chan error, 1)
	go func() {
		_, err := tryFor(time.Minute, s, charge(t, "first"))
		first <- err
	}()
	direct := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	until(t, "the first call has arrived", func() bool { return look(t, direct, charge(t, "first")).Remaining == 99 })

	ctx, leave := context.WithCancel(context.Background())
	var gone, stayed sync.WaitGroup
	for i := range leavers {
		gone.Go(func() {
			if i%10 == 0 {
				if r, err := l.Take(ctx, policy, "ip:192.0.2.1", 1); r.Allowed || !errors.Is(err, context.Canceled) {
					t.Errorf("a Take that was given up: %+v, %v", r, err)
				}
				return
			}
			if ok, err := tryIn(ctx, s, shared); ok || !errors.Is(err, context.Canceled) {
				t.Errorf("ok %t, error %v, want the context's", ok, err)
			}
		})
		if i%50 == 0 {
			stayed.Go(func() { takeAll(t, s, shared) })
		}
	}
	time.Sleep(200 * time.Millisecond) // so that most of them wait; it is right either way
	begin := time.Now()
	leave()
	gone.Wait()
	if took := time.Since(begin); took > patient { // replies come after a minute, unless they pass
		t.Errorf("they returned after %v", took)
	}
	proxy.Pass()
	stayed.Wait()
	if err := <-first; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, direct, 5000-1-leavers/50, shared) // one before, and those that stayed
	if n := client.Exists(t.Context(), "ratelimit:{ip:192.0.2.1}:work").Val(); n != 0 {
		t.Error("calls that were given up were charged")
	}
	if log.Len() > 0 {
		t.Errorf("logged as a failure: %q", log.String())
	}
}

// A halt is a hook that fails the first call of a script, and stops at a point of the second one. At both it waits until
// the test goes on.
type halt struct {
	reached, goOn chan struct{}
	calls         atomic.Int32
	before        bool                  // the point is before the second one is sent
	after         func(error) (at bool) // or after its reply
}

func newHalt() *halt { return &halt{reached: make(chan struct{}), goOn: make(chan struct{})} }

func (h *halt) stop() {
	h.reached <- struct{}{}
	<-h.goOn
}

// hook is that of a client.
func (h *halt) hook(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
	if !callsScript(cmd) {
		return send(ctx, cmd)
	}
	n := h.calls.Add(1)
	if n == 1 {
		h.stop()
		return errors.New("connection reset")
	}
	if n == 2 && h.before {
		h.stop()
	}
	err := send(ctx, cmd)
	if n == 2 && h.after != nil && h.after(err) {
		h.stop()
	}
	return err
}

// A call is not charged if its caller leaves before it is sent: while its flight waits for a connection, in a handshake,
// or before EVAL. The calls of callers that stay are charged.
func TestCallsWhoseCallersLeaveInTheirFlightAreNotSent(t *testing.T) {
	server := redistest.Start(t)
	inHandshake := func(h *halt, o *redis.Options) {
		o.OnConnect = func(context.Context, *redis.Conn) error {
			h.stop()
			return nil
		}
	}
	for where, prepare := range map[string]func(h *halt, o *redis.Options){
		"before a connection": func(h *halt, _ *redis.Options) { h.before = true },
		"in a handshake":      inHandshake,
		"in a handshake of a client with ContextTimeoutEnabled": func(h *halt, o *redis.Options) {
			o.ContextTimeoutEnabled = true
			inHandshake(h, o)
		},
		"before EVAL": func(h *halt, _ *redis.Options) {
			h.after = func(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }
		},
	} {
		for _, n := range []struct{ leave, stay, charges int }{{1, 0, 1}, {1, 0, 2}, {1, 0, 4}, {20, 0, 1}, {1, 1, 1}, {20, 20, 2}} {
			t.Run(fmt.Sprintf("%s, %d leave and %d stay, %d charges", where, n.leave, n.stay, n.charges), func(t *testing.T) {
				h := newHalt()
				client := server.ClientOptions(func(o *redis.Options) { prepare(h, o) })
				client.AddHook(hook(h.hook))
				s := ratelimit.Must(redisstore.New(client, redisstore.Config{MaxDenials: -1, MaxInFlight: 1}))
				var charges []store.Charge
				for i := range n.charges {
					charges = append(charges, charge(t, fmt.Sprint("k", i)))
				}
				direct := server.Client()
				for _, loads := range []*redisstore.Store{ratelimit.Must(redisstore.New(direct, redisstore.Config{})), redisstore.OnlyTake(ratelimit.Must(redisstore.New(direct, redisstore.Config{})))} {
					takeAll(t, loads, charges...)
				}
				server.Do("FLUSHALL")
				if h.after != nil {
					server.Do("SCRIPT", "FLUSH")
				}
				var first, gone, stayed sync.WaitGroup
				first.Go(func() {
					if ok, err := tryFor(time.Minute, s, charge(t, "first")); ok || err == nil {
						t.Errorf("the first call: ok %t, error %v", ok, err)
					}
				})
				<-h.reached
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				for i := range n.leave + n.stay {
					if i%2 == 0 && i/2 < n.leave || i >= 2*n.stay { // in turn, those that leave first
						gone.Go(func() {
							if ok, err := tryIn(ctx, s, charges...); ok || !errors.Is(err, context.Canceled) {
								t.Errorf("one that leaves: ok %t, error %v", ok, err)
							}
						})
					} else {
						stayed.Go(func() { takeAll(t, s, charges...) })
					}
					until(t, "it waits", func() bool { return s.Stats().Redis.Queued > i })
				}
				h.goOn <- struct{}{}
				first.Wait()
				<-h.reached // with all of them in one flight
				leave()
				gone.Wait()
				h.goOn <- struct{}{}
				stayed.Wait()
				s.Close()

				wantLeft(t, ratelimit.Must(redisstore.New(direct, redisstore.Config{})), int64(100-n.stay), charges...)
				if keys := client.Keys(t.Context(), "*").Val(); n.stay == 0 && len(keys) > 0 || n.stay > 0 && len(keys) != n.charges {
					t.Errorf("the server has the keys %q", keys)
				}
			})
		}
	}
}

// A redirection is a hook of the nodes of a cluster. It redirects the first call of a script to another node, and halts
// before the call is sent there.
type redirection struct {
	*halt
	answer error
}

func (*redirection) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *redirection) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" || r.answer == nil {
			return next(ctx, cmd)
		}
		switch r.calls.Add(1) {
		case 1:
			return r.answer
		case 2:
			r.stop()
		}
		return next(ctx, cmd)
	}
}

func (r *redirection) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "asking" && r.calls.Add(1) == 2 {
			r.stop()
		}
		return next(ctx, cmds)
	}
}

// The node to which the call is redirected does not have its key, and redirects it back.
func TestACallWhoseCallerLeavesWhileItIsRedirectedIsNotSent(t *testing.T) {
	cluster := redistest.SharedCluster(t, 3)
	key := onMasters(cluster)[0]
	for _, redirect := range []string{"MOVED", "ASK"} {
		t.Run(redirect, func(t *testing.T) {
			r := &redirection{halt: newHalt()}
			client := cluster.Client()
			client.OnNewNode(func(node *redis.Client) { node.AddHook(r) })
			cfg := redisstore.Config{Prefix: prefix(), MaxDenials: -1}
			s := openKnown(t, client, cfg)
			take(t, s, charge(t, key)) // so that the node has the script
			r.answer = redisError(fmt.Sprintf("%s %d %s", redirect, cluster.Slot(key), cluster.Addrs()[1]))

			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if ok, err := tryIn(ctx, s, charge(t, key)); ok || !errors.Is(err, context.Canceled) {
					t.Errorf("ok %t, error %v", ok, err)
				}
			}()
			<-r.reached
			leave()
			<-gone
			r.goOn <- struct{}{}
			s.Close()

			wantLeft(t, openKnown(t, cluster.Client(), cfg), 99, charge(t, key)) // of the call before
		})
	}
}
