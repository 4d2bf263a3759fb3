package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// aloneOn makes one call for each of some keys, one after the other.
func aloneOn(t *testing.T, client redisstore.Client) {
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	defer s.Close()
	for i := range 3 {
		takeAll(t, s, charge(t, fmt.Sprint("k", i)))
	}
}

func TestALoneCallerSendsItsCallItselfWhateverTheOptions(t *testing.T) {
	server := redistest.Start(t)
	for name, change := range map[string]func(*redis.Options){
		"defaults":              func(*redis.Options) {},
		"ContextTimeoutEnabled": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"no timeouts":           func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 },
	} {
		t.Run(name, func(t *testing.T) {
			client := server.ClientOptions(change)
			seen := 0
			client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
				buf := make([]byte, 16<<10)
				stack := string(buf[:runtime.Stack(buf, false)])
				if !strings.Contains(stack, "aloneOn") && strings.Contains(stack, "redisstore.") {
					t.Errorf("sent by another goroutine than the caller's:\n%s", stack)
				}
				if callsScript(cmd) {
					seen++
				}
				return send(ctx, cmd)
			}))
			given := *client.Options()
			aloneOn(t, client)
			if seen != 3 && seen != 4 {
				t.Errorf("a hook saw %d script calls, want each of 3 once, and perhaps one more that loads the script", seen)
			}
			if o := client.Options(); o.ContextTimeoutEnabled != given.ContextTimeoutEnabled || o.ReadTimeout != given.ReadTimeout || o.WriteTimeout != given.WriteTimeout {
				t.Errorf("the client's options became %+v", o)
			}
		})
	}
}

// Of the hooks of a client, those count that it has when a Store is made. They wrap each other as they do for other
// commands of the client, which pass by no hook more than before.
func TestHooksOfAClientOfDefaults(t *testing.T) {
	client := redistest.Start(t).Client()
	var order []string
	outer, inner, late := &ordered{"outer", &order}, &ordered{"inner", &order}, &ordered{"late", &order}
	client.AddHook(outer)
	client.AddHook(inner)
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	client.AddHook(late)
	take(t, s, charge(t, "k"))
	order = nil
	take(t, s, charge(t, "k"))
	if want := []string{"outer evalsha", "inner evalsha"}; !slices.Equal(order, want) {
		t.Errorf("a call of the Store passed by %v, want %v", order, want)
	}
	order = nil
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if want := []string{"outer ping", "inner ping", "late ping"}; !slices.Equal(order, want) {
		t.Errorf("another command passed by %v, want %v", order, want)
	}
}

// An ordered is a hook that notes its name and that of a command.
type ordered struct {
	name string
	seen *[]string
}

func (*ordered) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *ordered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*h.seen = append(*h.seen, h.name+" "+cmd.Name())
		return next(ctx, cmd)
	}
}
func (h *ordered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		*h.seen = append(*h.seen, fmt.Sprint(h.name, " pipeline of ", len(cmds)))
		return next(ctx, cmds)
	}
}

func TestAPipelineOfAClientOfDefaultsEndsByItsDeadlineAndPassesByItsHooks(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr = proxy.Addr() })
	var order []string
	client.AddHook(&ordered{"hook", &order})
	sender := redisstore.Sender(ratelimit.Must(redisstore.New(client, redisstore.Config{}))).(interface{ Pipeline() redis.Pipeliner })
	exec := func(d time.Duration) ([]redis.Cmder, error) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		pipe := sender.Pipeline()
		pipe.Incr(ctx, "k")
		pipe.Incr(ctx, "k")
		return pipe.Exec(ctx)
	}
	cmds, err := exec(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got := cmds[1].(*redis.IntCmd).Val(); got != 2 {
		t.Errorf("the second command answers %d, want 2", got)
	}
	if !slices.Contains(order, "hook pipeline of 2") {
		t.Errorf("the hook saw %v, want the pipeline of 2", order)
	}
	proxy.BlackHole()
	begin := time.Now()
	if _, err := exec(50 * time.Millisecond); err == nil || time.Since(begin) > 2*time.Second {
		t.Errorf("error %v after %v of 50 ms", err, time.Since(begin))
	}
}

// The client stays its owner's to close, and to use.
func TestAStoreOnAClosedClientOfDefaults(t *testing.T) {
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	take(t, s, charge(t, "k"))
	if got := client.PoolStats().TotalConns; got != 1 {
		t.Errorf("%d connections, want the one of the call in the client's pool", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Store.Close: %v", err)
	}
	s = ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if ok, err := try(s, charge(t, "k")); ok || !errors.Is(err, redis.ErrClosed) || !errors.Is(err, store.ErrNotCharged) {
		t.Errorf("ok %t, error %v, want redis.ErrClosed and that nothing was charged", ok, err)
	}
}

// A connection that is ready only after the deadline of the call that needed it is there for those that follow.
func TestAHandshakeThatOutlastsItsCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, change := range map[string]func(*redis.Options){
		"defaults":              func(*redis.Options) {},
		"ContextTimeoutEnabled": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	} {
		for what, call := range map[string]func(context.Context, *redisstore.Store) error{
			"Take": func(ctx context.Context, s *redisstore.Store) error {
				_, err := tryIn(ctx, s, charge(t, "k"))
				return err
			},
			"Inspect": func(ctx context.Context, s *redisstore.Store) error {
				_, err := s.Inspect(ctx, "p", "k")
				return err
			},
		} {
			if what == "Inspect" && name != "defaults" {
				continue // which ends by its deadline with all that it has begun, as the client is told to
			}
			t.Run(what+" of "+name, func(t *testing.T) {
				s := ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) {
					o.OnConnect = func(context.Context, *redis.Conn) error {
						time.Sleep(60 * time.Millisecond)
						return nil
					}
					change(o)
				}), redisstore.Config{}))
				defer s.Close()
				until(t, "a call is answered", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
					defer cancel()
					return call(ctx, s) == nil
				})
			})
		}
	}
}
