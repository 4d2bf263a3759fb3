package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// wantFindings checks a store: there is one finding for each of want, in that order, which has its words.
func wantFindings(t *testing.T, client redisstore.Client, want ...string) {
	t.Helper()
	wantFindingsOf(t, ratelimit.Must(redisstore.New(client, redisstore.Config{})), want...)
}

func wantFindingsOf(t *testing.T, s *redisstore.Store, want ...string) {
	t.Helper()
	diagnosis := func() []string {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		return s.Diagnose(ctx)
	}
	unwanted := func(finding string) bool {
		return ofTime(finding) && !slices.ContainsFunc(want, func(w string) bool { return strings.Contains(finding, w) })
	}
	findings := diagnosis()
	for tries := 1; tries < 10 && slices.ContainsFunc(findings, unwanted); tries++ {
		findings = diagnosis() // the processors were busy: a fault would be found each time
	}
	compareFindings(t, findings, want...)
}

func compareFindings(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 && got != nil {
		t.Errorf("findings %q, want %q", got, want)
		return
	}
	for i, finding := range got {
		if !strings.Contains(finding, want[i]) {
			t.Errorf("finding %q, want %q in it", finding, want[i])
		}
		if !strings.HasSuffix(finding, ".") || strings.Contains(finding, "secret") || strings.Contains(finding, "redis://") {
			t.Errorf("finding %q, want a sentence without secrets", finding)
		}
	}
}

// ofTime reports whether a finding is about how long Redis takes. Where other tests share the processors, it may be true
// for a moment.
func ofTime(finding string) bool {
	return strings.Contains(finding, "there and back") || strings.Contains(finding, "longer than another command")
}

func TestNothingIsWrongWithAHealthyServer(t *testing.T) {
	wantFindings(t, openOptions(t, "redis://"+miniredis.RunT(t).Addr()))
	server := redistest.Start(t)
	client := openOptions(t, "redis://"+server.Addr())
	wantFindings(t, client)
	wantFindingsOf(t, ratelimit.Must(redisstore.New(client, redisstore.Config{Clock: time.Now, Secret: []byte("secret"), Prefix: "p"})))
	wantFindings(t, struct{ redisstore.Client }{client}) // that has only Process
	if got := slices.DeleteFunc(ratelimit.Must(redisstore.New(client, redisstore.Config{})).Diagnose(context.Background()), ofTime); len(got) > 0 {
		t.Errorf("without a deadline: %q", got)
	}
}

func TestADiagnosisTouchesNoBucketsAndItsOwnExpire(t *testing.T) {
	server := redistest.Start(t)
	client := openOptions(t, "redis://"+server.Addr())
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	for _, key := range []string{"check", "check-0"} {
		take(t, s, charge(t, key))
	}
	before := client.Keys(t.Context(), "*").Val()
	var dumps []string
	for _, key := range before {
		dumps = append(dumps, client.Dump(t.Context(), key).Val())
	}
	wantFindingsOf(t, s)
	own := 0
	for _, key := range client.Keys(t.Context(), "*").Val() {
		if slices.Contains(before, key) {
			continue
		}
		own++
		if ttl := client.PTTL(t.Context(), key).Val(); !strings.HasPrefix(key, "ratelimit:{check-") || ttl <= 0 || ttl > 5*time.Second {
			t.Errorf("%s expires after %v", key, ttl)
		}
	}
	if own > 1 {
		t.Errorf("%d keys of its own, want one", own)
	}
	for i, key := range before {
		if client.Dump(t.Context(), key).Val() != dumps[i] {
			t.Errorf("%s has changed", key)
		}
	}
}

// configure sets options, each by itself: only Redis 7 sets several at once.
func configure(server *redistest.Server, options ...any) {
	for option := range slices.Chunk(options, 2) {
		server.Do("CONFIG", "SET", option[0], option[1])
	}
}

func TestWhatIsWrongWithAServer(t *testing.T) {
	const evicts, full = "maxmemory-policy is ", " of its maxmemory"
	for name, c := range map[string]struct {
		config []any
		want   []string
	}{
		"evicts any key":          {[]any{"maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"}, []string{evicts + "allkeys-lru"}},
		"evicts keys with a TTL":  {[]any{"maxmemory", "1gb", "maxmemory-policy", "volatile-ttl"}, []string{evicts + "volatile-ttl"}},
		"could evict, but has no": {[]any{"maxmemory", "0", "maxmemory-policy", "allkeys-lru"}, nil},
		"has memory":              {[]any{"maxmemory", "1gb", "maxmemory-policy", "noeviction"}, nil},
		"is full":                 {[]any{"maxmemory", "1", "maxmemory-policy", "noeviction"}, []string{full}},
		"cannot evict enough":     {[]any{"maxmemory", "1", "maxmemory-policy", "volatile-lru"}, []string{evicts + "volatile-lru", "no memory left"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := openOptions(t, "redis://"+server.Addr())
			configure(server, c.config...)
			wantFindings(t, client, c.want...)
		})
	}
	client := func(t *testing.T, h redis.Hook) *redis.Client {
		client := openOptions(t, "redis://"+redistest.Start(t).Addr())
		client.AddHook(h)
		return client
	}
	for info, want := range map[string][]string{
		"maxmemory:1000\r\nused_memory:930\r\nmaxmemory_policy:noeviction\r\n": {"uses 93 % of its maxmemory"},
		"\r\nredis_version\r\nmaxmemory:much\r\n# Server":                      nil,
	} {
		t.Run(info, func(t *testing.T) { wantFindings(t, client(t, answersInfo(info)), want...) })
	}
	t.Run("is a replica", func(t *testing.T) {
		server := redistest.Start(t)
		client := openOptions(t, "redis://"+server.Addr())
		server.Do("REPLICAOF", "127.0.0.1", "1")
		wantFindings(t, client, "is a replica")
		client.AddHook(answersInfo("redis_version:7.0.15\r\n"))
		wantFindings(t, client, "is a replica") // by READONLY
	})
	t.Run("is a node of a cluster", func(t *testing.T) {
		cluster := redistest.SharedCluster(t, 3)
		for i, node := range cluster.Nodes {
			if i != cluster.Owner(cluster.Slot("{check-0}")) {
				wantFindings(t, openOptions(t, "redis://"+node.Addr()), "is a node of a cluster")
			}
		}
	})
	t.Run("has another time", func(t *testing.T) {
		wantFindings(t, client(t, ahead(10)), "s ahead of this machine's")
		wantFindings(t, client(t, ahead(-20)), "s behind this machine's")
	})
	t.Run("cannot save, and refuses writes", func(t *testing.T) {
		server := redistest.Start(t)
		client := openOptions(t, "redis://"+server.Addr())
		server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		wantFindings(t, client, "NOREPLICAS")
	})
}

// answersInfo returns a hook that changes the reply to INFO.
func answersInfo(info string) hook {
	return func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
		err := send(ctx, cmd)
		if cmd.Name() == "info" {
			cmd.(interface{ SetVal(any) }).SetVal(info)
		}
		return err
	}
}

// ahead returns a hook that changes the reply to TIME.
func ahead(seconds int64) hook {
	return func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
		err := send(ctx, cmd)
		if cmd.Name() == "time" {
			cmd.(interface{ SetVal(any) }).SetVal([]any{time.Now().Unix() + seconds, int64(0)})
		}
		return err
	}
}

// failing returns a hook by which commands fail instead of being sent.
func failing(f func(name string) error) hook {
	return func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
		if err := f(cmd.Name()); err != nil {
			cmd.SetErr(err)
			return err
		}
		return send(ctx, cmd)
	}
}

func TestWhatMakesDecisionsSlow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("the way to Redis", func(t *testing.T) {
		proxy := redistest.NewProxy(t, server.Addr())
		client := openOptions(t, "redis://"+proxy.Addr())
		proxy.Delay(30 * time.Millisecond)
		wantFindings(t, client, "there and back")
	})
	t.Run("the script", func(t *testing.T) {
		client := openOptions(t, "redis://"+server.Addr())
		client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, send redis.ProcessHook) error {
			if cmd.Name() == "evalsha" {
				time.Sleep(50 * time.Millisecond)
			}
			return send(ctx, cmd)
		}))
		wantFindings(t, client, "longer than another command")
	})
}

func TestWhatTheUserMayNot(t *testing.T) {
	server := redistest.Start(t)
	if server.HasACL() {
		checkRights(t, server)
	}

	const refused = "refuses the client's user or password"
	wantFindings(t, openOptions(t, "redis://limiter:secretly@"+server.Addr()), refused)
	server.Do("CONFIG", "SET", "requirepass", "secret")
	wantFindings(t, openOptions(t, "redis://"+server.Addr()), refused)
	wantFindings(t, openOptions(t, "redis://:secretly@"+server.Addr()), refused)
}

// checkRights takes rights from a user, one by one.
func checkRights(t *testing.T, server *redistest.Server) {
	const unseen = "could not be looked at"
	minimal := guideACL(t)
	check := func(t *testing.T, rules []string, cfg redisstore.Config, want ...string) {
		t.Helper()
		permit(server, rules...)
		server.Do("SCRIPT", "FLUSH")
		wantFindingsOf(t, ratelimit.Must(redisstore.New(openOptions(t, "redis://limiter:secret@"+server.Addr()), cfg)), want...)
	}
	check(t, minimal, redisstore.Config{}, unseen)
	minimal = slices.Clip(append(minimal, "+info"))
	check(t, minimal, redisstore.Config{})
	for _, command := range []string{"evalsha", "eval", "time", "hmget", "hset", "pttl", "pexpire"} {
		check(t, append(minimal, "-"+command), redisstore.Config{}, "may not run "+command+",")
		if n := server.Do("EXISTS", "ratelimit:{check-0}"); n != int64(0) {
			t.Errorf("without %s a key is left", command)
		}
	}
	for _, key := range server.Do("KEYS", "*").([]any) {
		if server.Do("PTTL", key).(int64) < 0 {
			t.Errorf("%v has no TTL", key)
		}
	}
	check(t, append(minimal, "-time", "-pexpire"), redisstore.Config{}, "may not run pexpire, time,")
	check(t, append(minimal, "-time"), redisstore.Config{Clock: time.Now})
	check(t, minimal, redisstore.Config{Prefix: "other"}, "the keys of the Store: permit it with ACL SETUSER <user> ~other:*.")
	if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "reader", "%R~*").Err(); err == nil { // since Redis 7
		check(t, append(minimal, "resetkeys", "%R~ratelimit:*"), redisstore.Config{}, "the keys of the Store")
	} else if !strings.Contains(err.Error(), "Syntax error") {
		t.Error(err)
	}
}

// Some servers repeat what they do not understand.
func TestAFindingHasNoPasswordThatAServerRepeats(t *testing.T) {
	client := openOptions(t, "redis://"+redistest.Start(t).Addr())
	client.AddHook(failing(func(name string) error {
		return redisError("ERR unknown command 'AUTH', with args beginning with: 'user' 'secret'")
	}))
	wantFindings(t, client, "does not have all commands that a decision needs (ERR unknown command 'AUTH')")
}

func TestADiagnosisOfAServerThatFailsMidway(t *testing.T) {
	server := redistest.Start(t)
	for _, command := range []string{"hmget", "info", "time", "pttl", "pexpire", "eval", "evalsha"} {
		for err, want := range map[error]string{
			redisError("LOADING Redis is loading"): "is still loading its data",
			redisError("ERR broken"):               "with an error (ERR broken)",
			io.EOF:                                 "does not answer (EOF)",
		} {
			client := openOptions(t, "redis://"+server.Addr())
			client.AddHook(failing(func(name string) error {
				if name == command {
					return err
				}
				return nil
			}))
			if command == "info" && err != io.EOF {
				want = "could not be looked at"
			}
			wantFindings(t, client, want)
		}
	}
}

func TestADiagnosisSurvivesHooksThatPanic(t *testing.T) {
	client := openOptions(t, "redis://"+redistest.Start(t).Addr())
	client.AddHook(failing(func(string) error { panic("of the hook") }))
	wantFindings(t, client, "panics: of the hook.")

	client = openOptions(t, "redis://"+client.Options().Addr)
	client.AddHook(failing(func(string) error { runtime.Goexit(); return nil }))
	wantFindings(t, client, "one of its hooks ends the goroutine")
}

func TestADiagnosisEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, client := range map[string]redisstore.Client{
		"with redisstore.Options": openOptions(t, "redis://"+server.Addr()),
		"of another type":         struct{ redisstore.Client }{openOptions(t, "redis://"+server.Addr())},
		"that waits for 30 s":     openOptions(t, "redis://"+server.Addr()+"?read_timeout=30s&pool_timeout=30s"),
	} {
		t.Run(name, func(t *testing.T) {
			if c, ok := client.(*redis.Client); ok {
				c.Ping(t.Context())
			}
			server.Pause()
			defer server.Resume()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin := time.Now()
			compareFindings(t, ratelimit.Must(redisstore.New(client, redisstore.Config{})).Diagnose(ctx), "does not answer (no reply in time)")
			if took := time.Since(begin); took > 200*time.Millisecond+late {
				t.Errorf("took %v of 200 ms", took)
			}
		})
	}
	t.Run("that has ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		compareFindings(t, ratelimit.Must(redisstore.New(openOptions(t, "redis://"+server.Addr()), redisstore.Config{})).Diagnose(ctx), "does not answer")
	})
}

func TestADiagnosisSendsNothingTwice(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := openOptions(t, "redis://"+proxy.Addr()+"?max_retries=5&max_retry_backoff=1ms&min_idle_conns=0") // one connection, whose greeting is over
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.CutReply(0)
	wantFindings(t, client, "does not answer")
	if stats := fmt.Sprint(server.Do("INFO", "commandstats")); !strings.Contains(stats, "cmdstat_hmget:calls=1,") {
		t.Errorf("the server was asked more than once:\n%s", stats)
	}
}

func TestARedisThatRefusesConnectionsDoesNotAnswer(t *testing.T) {
	wantFindings(t, openOptions(t, "redis://127.0.0.1:1"), "does not answer (dial tcp 127.0.0.1:1: ")
	closed := openOptions(t, "redis://127.0.0.1:1")
	closed.Close()
	wantFindings(t, closed, "does not answer")
}

func TestWhatIsWrongWithAClient(t *testing.T) {
	const waits, dial, dials, backoff = "The client waits up to 5s", "DialTimeout is 5s", "dials 5 times", "before it follows redirects"
	addr := redistest.Start(t).Addr()
	plain := func(change func(*redis.Options)) *redis.Client {
		o, err := redisstore.Options("redis://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		change(o)
		client := redis.NewClient(o)
		t.Cleanup(func() { client.Close() })
		return client
	}
	ring := func(o redis.RingOptions) *redis.Ring {
		o.Addrs = map[string]string{"a": addr}
		client := redis.NewRing(&o)
		t.Cleanup(func() { client.Close() })
		return client
	}
	wantFindings(t, plain(func(o *redis.Options) { *o = redis.Options{Addr: addr} }), dial, dials)
	wantFindings(t, plain(func(o *redis.Options) { *o = redis.Options{Addr: addr, ContextTimeoutEnabled: true} }), dial, dials)
	wantFindings(t, plain(func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = false, -1 }))
	wantFindings(t, plain(func(o *redis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = false, -2 }), "waits for a reply for ever")
	wantFindings(t, plain(func(o *redis.Options) { o.ReadTimeout = -2 }), "sets no deadlines")
	wantFindings(t, ring(redis.RingOptions{}), waits, dial, dials)
	wantFindings(t, ring(redis.RingOptions{ReadTimeout: 100 * time.Millisecond, WriteTimeout: 50 * time.Millisecond, DialTimeout: time.Second, DialerRetries: 1}))
	wantFindings(t, ring(redis.RingOptions{ReadTimeout: -1, DialTimeout: time.Second, DialerRetries: 1}), "waits for a reply for ever")
	wantFindings(t, ring(redis.RingOptions{ContextTimeoutEnabled: true, ReadTimeout: -2, DialTimeout: time.Second, DialerRetries: 1}), "sets no deadlines")
	wantFindings(t, ring(redis.RingOptions{ContextTimeoutEnabled: true, DialTimeout: time.Second, DialerRetries: 1}))
	wantFindings(t, redistest.SharedCluster(t, 1).Client(), waits, dial, dials, backoff)
}

func TestADiagnosisOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartClusterWithReplicas(t, 3)
	client := openCluster(t, "redis://"+cluster.Addrs()[0])
	wantFindings(t, client)

	configure(cluster.Nodes[1], "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	wantFindings(t, client, "At "+cluster.Nodes[1].Addr()+": Redis evicts buckets")
	for _, node := range cluster.Nodes {
		configure(node, "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	}
	addrs := []string{cluster.Nodes[0].Addr(), cluster.Nodes[1].Addr(), cluster.Nodes[2].Addr()}
	slices.Sort(addrs)
	wantFindings(t, client, "At "+strings.Join(addrs, ", ")+": Redis evicts buckets")

	cluster.Nodes[2].Pause()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	findings := slices.DeleteFunc(ratelimit.Must(redisstore.New(client, redisstore.Config{})).Diagnose(ctx), ofTime)
	if len(findings) != 2 {
		t.Errorf("findings %q, want those of two nodes and that of the one that hangs", findings)
	}
	for _, finding := range findings {
		want := "Redis evicts buckets"
		if strings.Contains(finding, cluster.Nodes[2].Addr()) {
			want = "does not answer (no reply in time)"
		}
		if !strings.Contains(finding, want) {
			t.Errorf("finding %q, want %q in it", finding, want)
		}
	}
	cluster.Nodes[2].Resume()
}

func TestADiagnosisOfAClusterThatDoesNotServe(t *testing.T) {
	wantFindings(t, openCluster(t, "redis://127.0.0.1:1"), "does not answer")
	slotless := redistest.Start(t, "--cluster-enabled", "yes")
	wantFindings(t, openCluster(t, "redis://"+slotless.Addr()), "CLUSTERDOWN Hash slot not served")
}

func TestADiagnosisOfARing(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:                 map[string]string{"a": a.Addr(), "b": b.Addr()},
		ContextTimeoutEnabled: true, DialTimeout: time.Second, DialerRetries: 1,
		HeartbeatFrequency: 20 * time.Millisecond,
	})
	t.Cleanup(func() { ring.Close() })
	wantFindings(t, ring)
	configure(b, "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	wantFindings(t, ring, "At "+b.Addr()+": Redis evicts buckets")
	b.Kill()
	until(t, "the ring has noticed", func() bool { return ring.Len() == 1 })
	wantFindings(t, ring, `The shard "b" of the ring, at `+b.Addr()+", does not answer")
}

func TestADiagnosisBehindSentinel(t *testing.T) {
	sentinel := redistest.StartSentinelWithReplica(t)
	wantFindings(t, sentinel.Client(), "DialTimeout is 5s", "dials 5 times")
	wantFindings(t, openOptions(t, "redis://"+sentinel.Replica.Addr()), "is a replica")
}
