package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// writeValue writes a value, which must be done.
func writeValue(t *testing.T, s *redisstore.Store, v store.Value) store.Value {
	t.Helper()
	now, written, err := s.WriteValue(t.Context(), "s", v)
	if err != nil || !written {
		t.Fatalf("%+v: written %t, error %v", v, written, err)
	}
	return now
}

// wantValues reads the values after one, which must have these names and texts, as in "a=1 b=2".
func wantValues(t *testing.T, s *redisstore.Store, after store.Value, all bool, want string) {
	t.Helper()
	got, err := s.ReadValues(t.Context(), "s", after)
	var texts []string
	for _, v := range got.Values {
		texts = append(texts, v.Name+"="+v.Text)
	}
	if text := strings.Join(texts, " "); err != nil || got.All != all || text != want {
		t.Errorf("after %q: all %t, %.500s, error %v; want all %t, %s", after.Name, got.All, text, err, all, want)
	}
}

// A person can read a set, and it has no TTL while one of its values has no end. Otherwise it has one, a minute beyond the
// last end.
func TestWhatRedisKeepsOfASetOfValues(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"Redis":     func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client() },
		"miniredis": func(t *testing.T) redis.UniversalClient { return dial(t, miniredis.RunT(t).Addr()) },
		"Cluster":   func(t *testing.T) redis.UniversalClient { return redistest.SharedCluster(t, 3).Client() },
	} {
		t.Run(name, func(t *testing.T) {
			client, now := start(t), time.UnixMicro(1_795_367_301_000_007) // microseconds with zeros before them
			s := ratelimit.Must(redisstore.New(client, redisstore.Config{Prefix: "kept", Clock: func() time.Time { return now }}))
			expires := func(want time.Duration) {
				t.Helper()
				for _, key := range []string{"kept:{s}", "kept:{s}#versions", "kept:{s}#ends"} {
					if ttl := client.PTTL(t.Context(), key).Val(); ttl > want || ttl < want-time.Minute || want < 0 && ttl != want {
						t.Errorf("%s: TTL %v, want %v", key, ttl, want)
					}
				}
			}
			writeValue(t, s, store.Value{Name: "a", Text: "1 x", Until: now.Add(time.Hour)})
			expires(61 * time.Minute)
			writeValue(t, s, store.Value{Name: "b", Text: "y", Until: now.Add(time.Minute)})
			expires(61 * time.Minute)
			stays := writeValue(t, s, store.Value{Name: "c", Text: ""})
			expires(-1)
			want := "map[:1795367301000009 a:1795367301000007 1795370901000007 1 x b:1795367301000008 1795367361000007 y c:1795367301000009 0 ]"
			if got := fmt.Sprint(client.HGetAll(t.Context(), "kept:{s}").Val()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			stays.Until = now.Add(2 * time.Hour)
			stays = writeValue(t, s, stays)
			expires(121 * time.Minute)

			now = now.Add(time.Hour)
			wantValues(t, s, stays, false, "")
			if n := client.HLen(t.Context(), "kept:{s}").Val() + client.ZCard(t.Context(), "kept:{s}#ends").Val(); n != 3 {
				t.Errorf("%d fields and ends, want those of c, and the last version", n)
			}
			writeValue(t, s, store.Value{Name: "late", Until: now.Add(-time.Hour)})
			expires(61 * time.Minute)
			stays.Until = now.Add(-time.Minute)
			writeValue(t, s, stays)
			wantValues(t, s, store.Value{}, true, "")
			if n := client.Exists(t.Context(), "kept:{s}").Val(); n != 0 {
				t.Error("the hash is there, without a value")
			}
		})
	}
}

// By the server's clock, times have all their digits, and a value ends by it.
func TestValuesByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	v := writeValue(t, s, store.Value{Name: "v", Text: "x", Until: time.Now().Add(50 * time.Millisecond)})
	got, err := s.ReadValues(t.Context(), "s", store.Value{})
	for what, at := range map[string]time.Time{"version": time.UnixMicro(v.Version), "now": got.Now} {
		if since := time.Since(at); since < -time.Second || since > time.Minute || err != nil {
			t.Errorf("%s: %v ago, %v", what, since, err)
		}
	}
	until(t, "the value has ended", func() bool {
		got, err := s.ReadValues(t.Context(), "s", store.Value{})
		return err == nil && got.All && len(got.Values) == 0
	})
}

func TestValuesThatAreLostAreReadAnew(t *testing.T) {
	server := redistest.Start(t)
	s := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
	writeValue(t, s, store.Value{Name: "a", Text: "1"})
	last := writeValue(t, s, store.Value{Name: "b", Text: "1"})
	server.Do("FLUSHALL")
	wantValues(t, s, last, true, "")
	writeValue(t, s, store.Value{Name: "c", Text: "2"})
	last = writeValue(t, s, store.Value{Name: "b", Text: "2"})
	server.Do("DEL", "ratelimit:{s}#versions") // evicted
	wantValues(t, s, last, true, "")
	writeValue(t, s, store.Value{Name: "b", Text: "3"})
	wantValues(t, s, store.Value{}, true, "b=3")
}

// A replica that becomes the master may lack the last writes. Who has read them reads the set anew.
func TestValuesThatAFailoverHasLostAreReadAnew(t *testing.T) {
	master, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica.Do("REPLICAOF", host, port)
	before := ratelimit.Must(redisstore.New(master.Client(), redisstore.Config{}))
	after := ratelimit.Must(redisstore.New(replica.Client(), redisstore.Config{}))
	a := writeValue(t, before, store.Value{Name: "a", Text: "1"})
	b := writeValue(t, before, store.Value{Name: "b", Text: "1"})
	until(t, "the replica has the values", func() bool { return replica.Do("ZCARD", "ratelimit:{s}#versions") == int64(2) })
	wantValues(t, after, a, false, "b=1") // also by a replica

	replica.Do("REPLICAOF", "NO", "ONE")
	changed := writeValue(t, before, store.Value{Name: "a", Text: "2", Version: a.Version})
	added := writeValue(t, before, store.Value{Name: "c", Text: "2"})
	for _, lost := range []store.Value{changed, added} {
		wantValues(t, after, lost, true, "a=1 b=1")
	}
	wantValues(t, after, b, false, "")
	if now, written, err := after.WriteValue(t.Context(), "s", store.Value{Name: "a", Text: "3", Version: changed.Version}); written || err != nil || now.Version != a.Version {
		t.Errorf("%+v, written %t, error %v, want the value that is there", now, written, err)
	}
	writeValue(t, after, store.Value{Name: "d", Text: "3"})
	wantValues(t, after, added, true, "a=1 b=1 d=3")
}

// A set that is written or lost between two pages is read as it is at the last one.
func TestValuesThatChangeWhileTheyAreRead(t *testing.T) {
	for name, meanwhile := range map[string]struct {
		change func(t *testing.T, server *redistest.Server, s *redisstore.Store)
		want   string // the first and the last of so many values
	}{
		"written": {func(t *testing.T, _ *redistest.Server, s *redisstore.Store) {
			writeValue(t, s, store.Value{Name: "0", Text: "new", Version: store.AnyVersion})
		}, "1200 values from 1=old to 0=new"},
		"ended": {func(t *testing.T, _ *redistest.Server, s *redisstore.Store) {
			writeValue(t, s, store.Value{Name: "499", Until: time.UnixMicro(1), Version: store.AnyVersion}) // the last of the page
			wantValues(t, s, writeValue(t, s, store.Value{Name: "0", Text: "new", Version: store.AnyVersion}), false, "")
		}, "1199 values from 1=old to 0=new"},
		"lost": {func(t *testing.T, server *redistest.Server, s *redisstore.Store) {
			server.Do("FLUSHALL")
			writeValue(t, s, store.Value{Name: "a", Text: "anew"})
		}, "1 values from a=anew to a=anew"},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			writer := ratelimit.Must(redisstore.New(server.Client(), redisstore.Config{}))
			client := server.ClientOptions(func(*redis.Options) {})
			calls := 0
			client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
				if callsScript(cmd) {
					if calls++; calls == 2 {
						meanwhile.change(t, server, writer)
					}
				}
				return send(ctx, cmd)
			}))
			for i := range 1200 {
				writeValue(t, writer, store.Value{Name: fmt.Sprint(i), Text: "old"})
			}
			got, err := ratelimit.Must(redisstore.New(client, redisstore.Config{})).ReadValues(t.Context(), "s", store.Value{})
			if err != nil || !got.All || calls < 3 && name != "lost" {
				t.Fatalf("all %t, %d calls, error %v", got.All, calls, err)
			}
			first, last := got.Values[0], got.Values[len(got.Values)-1]
			if text := fmt.Sprintf("%d values from %s=%s to %s=%s", len(got.Values), first.Name, first.Text, last.Name, last.Text); text != meanwhile.want {
				t.Errorf("%s, want %s", text, meanwhile.want)
			}
		})
	}
}

// The rights that the guide lists are enough, and without one of them the error names it.
func TestRightsForValues(t *testing.T) {
	server := redistest.Start(t)
	if !server.HasACL() {
		return
	}
	rules, extra := guideACLs(t)[0], guideACLs(t)[1]
	works := func(rules []string) error {
		server.Do("FLUSHALL")
		s := ratelimit.Must(redisstore.New(limiter(server, rules...), redisstore.Config{}))
		for _, v := range []store.Value{{Name: "ends", Until: time.Now().Add(-time.Second)}, {Name: "stays"}} {
			if _, _, err := s.WriteValue(t.Context(), "s", v); err != nil {
				return err
			}
		}
		_, err := s.ReadValues(t.Context(), "s", store.Value{})
		return err
	}
	if err := works(append(rules, extra...)); err != nil {
		t.Fatal(err)
	}
	remedy := ": the user of Redis needs the rights " + strings.Join(extra, " ") + ", and those of buckets, on the keys ratelimit:*"
	for i := range extra {
		fewer := append(append(guideACL(t), extra[:i]...), extra[i+1:]...)
		if err := works(fewer); !notPermitted(err) || !strings.HasSuffix(err.Error(), remedy) {
			t.Errorf("without %s: %v", extra[i], err)
		}
	}
	server.Do("FLUSHALL")
	permit(server, append(append(rules, extra...), "resetkeys", "~other:*")...)
	s := ratelimit.Must(redisstore.New(server.ClientOptions(func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" }), redisstore.Config{}))
	if _, err := s.ReadValues(t.Context(), "s", store.Value{}); err == nil || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("without the keys: %v", err)
	}
}

// A write may have been done although its reply is lost, so it is not sent again. Calls end by their context, whatever the
// client's timeouts are.
func TestValuesAreWrittenOnceAndCallsEndByTheirContext(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.ClientOptions(func(o *redis.Options) { o.Addr, o.ReadTimeout, o.MaxRetries = proxy.Addr(), 100*time.Millisecond, 5 })
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	first := writeValue(t, s, store.Value{Name: "v", Text: "1"})
	proxy.DropReplies()
	if _, written, err := s.WriteValue(t.Context(), "s", store.Value{Name: "v", Text: "2", Version: store.AnyVersion}); err == nil || written {
		t.Errorf("written %t, error %v", written, err)
	}
	proxy.Pass()
	if calls := commandCalls(t, server.Client(), "hset"); calls != 2 {
		t.Errorf("%d writes, want 2", calls)
	}
	wantValues(t, s, first, false, "v=2")
	proxy.Delay(time.Minute)
	defer proxy.Delay(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := s.ReadValues(ctx, "s", store.Value{})
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
	if _, _, err := s.WriteValue(ctx, "s", store.Value{Name: "v"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, err := s.ReadValues(t.Context(), "s", store.Value{}); !errors.Is(err, redisstore.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.WriteValue(t.Context(), "s", store.Value{Name: "v"}); !errors.Is(err, redisstore.ErrClosed) {
		t.Errorf("%v", err)
	}
}
