package redisstore_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

const (
	month = 30 * 24 * time.Hour

	// patient is the timeout of calls that must not fail, on a machine that is busy.
	patient = 10 * time.Second
)

var (
	limit = teststore.Limit
	quiet = slog.New(slog.DiscardHandler)

	// asking is for servers whose clock a test sets: a denial that is remembered goes by how time passes here.
	asking = redisstore.Config{MaxDenials: -1}

	// forms are the ways to send batches to a cluster.
	forms = map[string]redisstore.CrossSlot{"across slots": redisstore.CrossSlotAlways, "slot by slot": redisstore.CrossSlotNever}
)

// charge returns a charge of a bucket of 100 tokens that gains one in an hour.
func charge(t *testing.T, key string) store.Charge {
	return store.Charge{Policy: "p", Key: key, Limit: limit(t, 1, time.Hour, 100), Cost: 1}
}

// owes returns a charge of what has been used already.
func owes(c store.Charge, cost int64) store.Charge {
	c.Cost, c.Owed = cost, true
	return c
}

// costs returns c with another cost.
func costs(c store.Charge, cost int64) store.Charge {
	c.Cost = cost
	return c
}

// take makes a call of one charge that must not fail.
func take(t *testing.T, s store.Store, c store.Charge) store.State {
	t.Helper()
	_, states := takeStates(t, s, c)
	return states[0]
}

// takeStates makes a call that must not fail.
func takeStates(t *testing.T, s store.Store, charges ...store.Charge) (bool, []store.State) {
	t.Helper()
	states := make([]store.State, len(charges))
	ok, err := s.Take(context.Background(), charges, states)
	if err != nil {
		t.Fatal(err)
	}
	return ok, states
}

// try makes a call that may fail, with 100 ms.
func try(s store.Store, charges ...store.Charge) (bool, error) {
	return tryFor(100*time.Millisecond, s, charges...)
}

func tryFor(d time.Duration, s store.Store, charges ...store.Charge) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return tryIn(ctx, s, charges...)
}

func tryIn(ctx context.Context, s store.Store, charges ...store.Charge) (bool, error) {
	return s.Take(ctx, charges, make([]store.State, len(charges)))
}

// takeAll makes a call that must be allowed.
func takeAll(t *testing.T, s store.Store, charges ...store.Charge) {
	t.Helper()
	if ok, err := tryFor(patient, s, charges...); !ok || err != nil {
		t.Errorf("ok %t, error %v", ok, err)
	}
}

// wantRefused makes a call that must be refused.
func wantRefused(t *testing.T, s store.Store, charges ...store.Charge) {
	t.Helper()
	if ok, err := tryFor(patient, s, charges...); ok || err != nil {
		t.Errorf("ok %t, error %v, want a refusal", ok, err)
	}
}

// look reads the bucket of c.
func look(t *testing.T, s store.Store, c store.Charge) store.State {
	t.Helper()
	return take(t, s, store.Charge{Policy: c.Policy, Key: c.Key, Limit: c.Limit})
}

// wantLeft checks what buckets hold.
func wantLeft(t *testing.T, s store.Store, want int64, charges ...store.Charge) {
	t.Helper()
	for _, c := range charges {
		if got := look(t, s, c).Remaining; got != want {
			t.Errorf("%s of %s has %d left, want %d", c.Policy, c.Key, got, want)
		}
	}
}

// until waits until reached returns true.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for begin := time.Now(); !reached(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 2*patient {
			t.Fatalf("not reached within %v: %s", 2*patient, what)
		}
	}
}

// dial returns a client of a server with the default options.
func dial(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}

// limiter returns a client whose user has these rights on server.
func limiter(server *redistest.Server, rules ...string) *redis.Client {
	permit(server, rules...)
	return server.ClientOptions(func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" })
}

// permit has a user have these rights, and no others.
func permit(server *redistest.Server, rules ...string) {
	set := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
	for _, rule := range rules {
		set = append(set, rule)
	}
	server.Do(set...)
}

// redisError is an error of a server.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func wantRedisError(t *testing.T, ok bool, err error, prefix string) {
	t.Helper()
	if ok || !redis.HasErrorPrefix(err, prefix) {
		t.Errorf("ok %t, error %v, want %s", ok, err, prefix)
	}
}

// A hook is what the commands of a client pass by. It sends them on, or answers them itself.
type hook func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// callsScript reports whether cmd runs one of the scripts.
func callsScript(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" || cmd.Name() == "eval" }

// commandCalls returns how often a server ran commands since its statistics were reset, also in scripts.
func commandCalls(t *testing.T, client *redis.Client, commands ...string) (calls int) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		if _, rest, found := strings.Cut(info, "cmdstat_"+command+":calls="); found {
			number, _, _ := strings.Cut(rest, ",")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			calls += n
		}
	}
	return calls
}
