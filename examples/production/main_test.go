//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

const (
	secret, opsPassword, metricsPassword = "a secret of at least 32 bytes, or more", "correct horse", "battery staple"

	replicaCount, burst = 3, 20
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

// A fleet is three replicas on one Redis, behind a proxy that sends each request to the next one.
type fleet struct {
	*testing.T
	redis    *redistest.Server
	replicas []*testprogram.Program
	bases    []string // of the replicas
	proxy    *httptest.Server
}

// peerHeader is the address of the TCP peer, as the proxy of the tests sees it.
const peerHeader = "Test-Peer"

func startFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{T: t, redis: redistest.Start(t)}
	file, err := os.ReadFile("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	slowly := strings.NewReplacer("600/1m burst 100", "600/1m burst 10000", "60/1m burst 20", fmt.Sprintf("1/1h burst %d", burst)) // no token comes back in a test
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(limits, []byte(slowly.Replace(string(file))), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"JWT_SECRET": secret, "OPS_PASSWORD": opsPassword, "METRICS_PASSWORD": metricsPassword, "REDIS_URL": "redis://" + f.redis.Addr()} {
		t.Setenv(name, value)
	}
	for range replicaCount {
		f.replicas = append(f.replicas, testprogram.Start(t, "-addr", "127.0.0.1:0", "-limits", limits, "-replicas", fmt.Sprint(replicaCount)))
	}
	for _, r := range f.replicas {
		f.bases = append(f.bases, "http://"+r.Address(t))
	}
	var requests atomic.Int64
	f.proxy = httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(f.bases[requests.Add(1)%replicaCount])
		if err != nil {
			t.Error(err)
		}
		r.SetURL(to)
		r.Out.Host = r.In.Host
		// As nginx does with $proxy_add_x_forwarded_for: what the client sent comes first.
		r.Out.Header["X-Forwarded-For"] = append(r.In.Header["X-Forwarded-For"], r.In.Header.Get(peerHeader))
		r.Out.Header.Del(peerHeader)
	}})
	t.Cleanup(f.proxy.Close)
	return f
}

// do sends a request through the proxy. It returns the response, and its body.
func (f *fleet) do(method, path, body string, change ...func(*http.Request)) (*http.Response, string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.proxy.URL+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set(peerHeader, "203.0.113.1")
	for _, c := range change {
		c(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		f.Fatal(err)
	}
	return response, string(text)
}

// statuses returns how many of n requests for items have each status.
func (f *fleet) statuses(n int, change ...func(*http.Request)) map[int]int {
	f.Helper()
	got := make(map[int]int)
	for range n {
		response, _ := f.do("GET", "/items/7", "", change...)
		got[response.StatusCode]++
	}
	return got
}

func (f *fleet) want(what string, got, want map[int]int) {
	f.Helper()
	if !maps.Equal(got, want) {
		f.Errorf("%s: statuses %v, want %v", what, got, want)
	}
}

// wantStatus expects a status of a request to each replica.
func (f *fleet) wantStatus(status int, method, path, body string, change ...func(*http.Request)) (text string) {
	f.Helper()
	for range replicaCount {
		var response *http.Response
		if response, text = f.do(method, path, body, change...); response.StatusCode != status {
			f.Errorf("%s %s: status %d, want %d: %.200s", method, path, response.StatusCode, status, text)
		}
	}
	return text
}

func from(addr string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(peerHeader, addr) }
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func as(user, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

// member sends a token, signed with key.
func member(t *testing.T, sub, key string) func(*http.Request) {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": sub, "exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return with("Authorization", "Bearer "+token)
}

func TestThreeReplicasBehindAProxy(t *testing.T) {
	f := startFleet(t)
	some := map[int]int{200: burst, 429: 10}

	// Guests.
	f.want("a guest", f.statuses(burst+10, from("203.0.113.7")), some)
	f.want("the guest with a header", f.statuses(3, from("203.0.113.7"), with("X-Forwarded-For", "203.0.113.9")), map[int]int{429: 3})
	f.want("the guest whose header is this machine", f.statuses(3, from("203.0.113.7"), with("X-Forwarded-For", "127.0.0.1")), map[int]int{429: 3})
	f.want("the address in that header", f.statuses(burst+10, from("203.0.113.9")), some)

	// Members.
	ann := member(t, "ann", secret)
	f.want("a member", f.statuses(burst, ann, from("203.0.113.7")), map[int]int{200: burst})
	f.want("the member elsewhere", f.statuses(3, ann, from("203.0.113.8")), map[int]int{429: 3})
	f.want("a forged token", f.statuses(3, member(t, "bob", "another secret of at least 32 bytes."), from("203.0.113.7")), map[int]int{429: 3})

	// The page, and metrics.
	ops, prometheus := as("ops", opsPassword), as("prometheus", metricsPassword)
	for _, path := range []string{"/admin/", "/admin/facts.json", "/metrics"} {
		f.wantStatus(401, "GET", path, "")
		f.wantStatus(401, "GET", path, "", as("ops", metricsPassword))
		for _, user := range []func(*http.Request){ops, prometheus} {
			if text := f.wantStatus(200, "GET", path, "", user); !strings.Contains(text, "member") {
				t.Errorf("%s has no policy: %.500s", path, text)
			}
		}
	}
	f.wantStatus(200, "GET", "/healthz", "")

	// Each replica shows the others, and the names of members.
	testprogram.Until(t, "the page has the name of a member", func() bool {
		return strings.Contains(f.wantStatus(200, "GET", "/admin/key?key=member:5", "", ops), "Ann Example")
	})
	testprogram.Until(t, "the page has all replicas", func() bool {
		return strings.Count(f.wantStatus(200, "GET", "/admin/facts.json", "", ops), `"state": "up"`) == replicaCount
	})

	// A limit of one member changes on all replicas.
	raise := url.Values{"policy": {"member"}, "key": {"member:eve"}, "limit": {fmt.Sprintf("1/1h burst %d", 2*burst)}}.Encode()
	f.wantStatus(403, "POST", "/admin/overrides", raise, prometheus)
	if response, text := f.do("POST", "/admin/overrides", raise, ops); response.StatusCode != 200 {
		t.Fatalf("the limit is not changed: %d %s", response.StatusCode, text)
	}
	testprogram.Until(t, "all replicas follow", f.raised)

	// Redis dies.
	f.redis.Kill()
	testprogram.Until(t, "all replicas have given Redis up", func() bool { return f.loginStatuses()[503] == replicaCount })
	f.want("a member without tokens, in the outage", f.statuses(3, ann), map[int]int{429: 3})
	bob := member(t, "bob", secret)
	outage := f.statuses(burst+10, bob)
	if outage[200] < burst-replicaCount || outage[200] > burst+replicaCount || outage[200]+outage[429] != burst+10 {
		t.Errorf("in the outage: statuses %v, want about %d of %d", outage, burst, burst+10)
	}
	f.wantStatus(200, "GET", "/admin/", "", ops)

	// It comes back, without data.
	f.redis.Restart()
	testprogram.Until(t, "all replicas use Redis again", func() bool { return f.loginStatuses()[503] == 0 })
	if after := f.statuses(burst+10, bob); after[200] > replicaCount || after[200]+after[429] != burst+10 {
		t.Errorf("after the outage: statuses %v, but Redis is charged for what was allowed in it", after)
	}
	f.want("a new guest", f.statuses(burst+10, from("203.0.113.20")), some)
	testprogram.Until(t, "the limit of the member is in force again", f.raised)

	f.wantGraceful()
}

// raised reports whether all replicas have the changed limit of a member.
func (f *fleet) raised() bool {
	eve := member(f.T, "eve", secret)
	for range replicaCount {
		if response, _ := f.do("GET", "/items/7", "", eve); response.Header.Get("X-Ratelimit-Limit") != fmt.Sprint(2*burst) {
			return false
		}
	}
	return true
}

// loginStatuses returns the statuses of a login at each replica.
func (f *fleet) loginStatuses() map[int]int {
	f.Helper()
	got := make(map[int]int)
	for range replicaCount {
		response, _ := f.do("POST", "/login", "user=ann")
		got[response.StatusCode]++
	}
	return got
}

// wantGraceful expects that a replica finishes a request that has begun before SIGTERM, and then ends.
func (f *fleet) wantGraceful() {
	address := strings.TrimPrefix(f.bases[0], "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		f.Fatal(err)
	}
	defer conn.Close()
	responses := bufio.NewReader(conn)
	const body = "user=zoe"
	fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: api\r\nX-Forwarded-For: 203.0.113.30\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	if line, err := responses.ReadString('\n'); !strings.Contains(line, "100 Continue") { // the handler waits for the body
		f.Fatalf("got %q, %v", line, err)
	}
	responses.ReadString('\n')

	f.replicas[0].Signal(f.T, syscall.SIGTERM)
	testprogram.Until(f.T, "new connections are refused", func() bool {
		another, err := net.Dial("tcp", address)
		if err == nil {
			another.Close()
		}
		return err != nil
	})
	fmt.Fprint(conn, body)
	response, err := http.ReadResponse(responses, nil)
	if err != nil {
		f.Fatal(err)
	}
	if text, err := io.ReadAll(response.Body); response.StatusCode != 401 || !strings.Contains(string(text), "zoe") {
		f.Errorf("the request that had begun: status %d, %s, %v", response.StatusCode, text, err)
	}
	f.replicas[0].Wait(f.T, 10*time.Second)
}
