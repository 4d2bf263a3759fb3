package redisstore_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// wantOptions compares fields of options, a pointer to a struct, by name.
func wantOptions(t *testing.T, options any, want map[string]any) {
	t.Helper()
	for name, value := range want {
		if got := reflect.ValueOf(options).Elem().FieldByName(name).Interface(); !reflect.DeepEqual(got, value) {
			t.Errorf("%s is %v, want %v", name, got, value)
		}
	}
}

var presets = map[string]any{
	"ContextTimeoutEnabled": true,
	"DisableIdentity":       true,
	"DialTimeout":           500 * time.Millisecond,
	"DialerRetries":         1,
	"ReadTimeout":           time.Second,
	"WriteTimeout":          time.Second,
	"MaxRetries":            -1,
	"MinRetryBackoff":       time.Duration(-1),
	"MaxRetryBackoff":       time.Duration(-1),
	"MinIdleConns":          2,
}

func TestOptionsAreFitForAHotPath(t *testing.T) {
	for _, url := range []string{
		"redis://localhost", "rediss://user:p%40ss@localhost:6380/3", "unix:///run/redis.sock?db=1",
		"redis://localhost?max_retries=0&dial_timeout=&min_idle_conns=", // which leaves them open
	} {
		o, err := redisstore.Options(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		wantOptions(t, o, presets)
	}
	o, err := redisstore.Options("rediss://user:p%40ss@localhost:6380/3")
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, o, map[string]any{"Addr": "localhost:6380", "Username": "user", "Password": "p@ss", "DB": 3})
	if o.TLSConfig == nil || o.TLSConfig.ServerName != "localhost" {
		t.Errorf("TLS is %+v", o.TLSConfig)
	}
}

func TestClusterOptionsAreFitForAHotPathAndKeepTheirRedirects(t *testing.T) {
	o, err := redisstore.ClusterOptions("redis://user:pass@localhost:7000?addr=localhost:7001")
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, o, presets)
	wantOptions(t, o, map[string]any{"Addrs": []string{"localhost:7000", "localhost:7001"}, "Username": "user", "Password": "pass", "MaxRedirects": 0})
	client := redis.NewClusterClient(o)
	defer client.Close()
	if got := client.Options().MaxRedirects; got != 3 {
		t.Errorf("MaxRedirects is %d, want go-redis's 3", got)
	}
	if o, err = redisstore.ClusterOptions("redis://localhost:7000/0?dialer_retries=4&max_redirects=8&min_idle_conns=0"); err != nil {
		t.Fatal(err)
	}
	wantOptions(t, o, map[string]any{"DialerRetries": 4, "MaxRedirects": 8, "MinIdleConns": 0})
}

func TestWhatAURLSaysWinsOverOptions(t *testing.T) {
	const query = "?max_retries=2&min_retry_backoff=3ms&max_retry_backoff=4ms&dial_timeout=2s&read_timeout=3s&write_timeout=0&min_idle_conns=0&pool_size=7"
	want := map[string]any{
		"MaxRetries": 2, "MinRetryBackoff": 3 * time.Millisecond, "MaxRetryBackoff": 4 * time.Millisecond,
		"DialTimeout": 2 * time.Second, "ReadTimeout": 3 * time.Second, "WriteTimeout": time.Duration(-1),
		"MinIdleConns": 0, "PoolSize": 7, "ContextTimeoutEnabled": true,
	}
	o, err := redisstore.Options("redis://localhost" + query)
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, o, want)
	cluster, err := redisstore.ClusterOptions("redis://localhost" + query)
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, cluster, want)
}

func TestAMalformedURLIsAnErrorThatSaysWhatWouldBeRightAndNothingOfThePassword(t *testing.T) {
	for url, want := range map[string]string{
		"":                                         "scheme \"\" must be redis",
		"localhost:6379":                           "must be redis",
		"http://localhost":                         "must be redis or rediss",
		"redis://localhost/three":                  "host:port/db",
		"redis://localhost?dail_timeout=1s":        "dail_timeout",
		"redis://localhost?dial_timeout=soon":      "dial_timeout",
		"redis://localhost?dial_timeout=0":         "dial_timeout must be above 0",
		"redis://user:se cret@localhost":           "escaped",
		"redis://user:secret%@localhost":           "escaped",
		"redis://user:/secret@localhost":           "escaped",
		"redis://user:12/secret@localhost":         "escaped",
		"redis://user:12?secret@localhost":         "escaped",
		"redis://user:12#secret@localhost":         "escaped",
		"redis://user:secret@localhost/three":      "host:port/db",
		"redis://user:secret@localhost:port":       "escaped",
		"redis://user:secret@localhost?db=secrets": "", // it is of no password
	} {
		_, err := redisstore.Options(url)
		if err == nil || !strings.HasPrefix(err.Error(), "redisstore: Options: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", url, err, want)
		}
		if want != "" && err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error has the password: %v", url, err)
		}
	}
	for url, want := range map[string]string{
		"unix:///run/redis.sock":           "must be redis or rediss",
		"redis://localhost/3":              "database 0",
		"redis://user:12/secret@localhost": "",
		"redis://user:12?secret@localhost": "escaped",
		"redis://localhost?addr=here":      "addr",
		"redis://localhost?dial_timeout=0": "dial_timeout must be above 0",
	} {
		_, err := redisstore.ClusterOptions(url)
		if err == nil || !strings.HasPrefix(err.Error(), "redisstore: ClusterOptions: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v, want %q in it", url, err, want)
		}
	}
}

func openOptions(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redisstore.Options(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

func openCluster(t *testing.T, url string) *redis.ClusterClient {
	t.Helper()
	o, err := redisstore.ClusterOptions(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestARefusedConnectionFailsAtOnceAndSaysWhy(t *testing.T) {
	client := openOptions(t, "redis://127.0.0.1:1")
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	for range 3 * client.Options().PoolSize { // above which go-redis would not dial any more
		ok, err := tryFor(patient, s, charge(t, "k"))
		var refused *net.OpError
		if ok || errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || refused.Op != "dial" {
			t.Fatalf("ok %t, error %v, want that of the dial", ok, err)
		}
	}
}

// By itself go-redis would refuse it for up to a second, once PoolSize dials have failed.
func TestTheFirstCallAfterAnOutageSucceeds(t *testing.T) {
	server := redistest.Start(t)
	client := openOptions(t, "redis://"+server.Addr())
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	take(t, s, charge(t, "k"))
	server.Kill()
	failsOnEachDial(t, s, client.Options().PoolSize)
	server.Restart()
	take(t, s, charge(t, "k"))
}

func TestAClusterWithItsOptionsIsBackAtOnceToo(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1)
	client := openCluster(t, "redis://"+cluster.Addrs()[0])
	s := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
	take(t, s, charge(t, "k"))
	cluster.Nodes[0].Kill()
	failsOnEachDial(t, s, client.Options().PoolSize)
	cluster.Nodes[0].Restart()
	// The node answers at once, though it waits for others before it serves.
	if _, err := tryFor(patient, s, charge(t, "k")); err != nil && !redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		t.Error(err)
	}
}

// failsOnEachDial makes more calls than go-redis would dial for.
func failsOnEachDial(t *testing.T, s store.Store, poolSize int) {
	t.Helper()
	for range 3 * poolSize {
		if ok, err := tryFor(patient, s, charge(t, "k")); ok || err == nil {
			t.Fatalf("ok %t, error %v of a server that was killed", ok, err)
		}
	}
}
