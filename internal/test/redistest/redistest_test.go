package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(Sharing(m)) }

// silence is how long a test waits for a reply that must not come.
const silence = 100 * time.Millisecond

// accepts reports whether a connection to addr can be made.
func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// endingTB stands in for the test of code that is expected to end it.
type endingTB struct {
	testing.TB
	end string
}

func (e *endingTB) Skip(...any)           { e.stop("skip") }
func (e *endingTB) Fatal(...any)          { e.stop("fatal") }
func (e *endingTB) Fatalf(string, ...any) { e.stop("fatal") }

func (e *endingTB) stop(end string) {
	e.end = end
	runtime.Goexit()
}

// endOf returns how f ends its test: "skip", "fatal" or, if it returns, "".
func endOf(t *testing.T, f func(testing.TB)) string {
	tb := &endingTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(tb)
	}()
	<-done
	return tb.end
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := Start(t, "--maxmemory", "1mb")
	got := s.Client().ConfigGet(t.Context(), "*").Val()
	for option, want := range map[string]string{
		"maxmemory":  "1048576",
		"bind":       "127.0.0.1",
		"save":       "",
		"appendonly": "no",
	} {
		if value, ok := got[option]; !ok || value != want {
			t.Errorf("%s = %q, want %q", option, value, want)
		}
	}
}

func TestStartOnTakenPort(t *testing.T) {
	t.Parallel()
	s := Start(t)
	other := &Server{tb: t, path: s.path, args: s.args, addr: s.addr}
	t.Cleanup(other.cleanup)
	if other.run() {
		t.Error("the second server on a port was taken to have started")
	}
}

func TestStartWithoutBinary(t *testing.T) {
	for _, tt := range []struct{ program, require, ci, want string }{
		{"", "", "", "skip"},
		{"", "1", "", "fatal"},
		{"", "", "true", "fatal"},
		{"/nowhere/valkey-server", "", "", "skip"},
		{"/nowhere/valkey-server", "1", "", "fatal"},
	} {
		t.Run(fmt.Sprintf("RATELIMIT_REDIS_SERVER=%s,RATELIMIT_REQUIRE_REDIS=%s,CI=%s", tt.program, tt.require, tt.ci), func(t *testing.T) {
			if tt.program == "" {
				t.Setenv("PATH", "")
			}
			t.Setenv(programVariable, tt.program)
			t.Setenv("RATELIMIT_REQUIRE_REDIS", tt.require)
			t.Setenv("CI", tt.ci)
			if got := endOf(t, func(tb testing.TB) { Start(tb) }); got != tt.want {
				t.Errorf("end of the test = %q, want %q", got, tt.want)
			}
		})
	}
}

// The variable names another program than redis-server, on PATH or by its path.
func TestStartRunsTheProgramThatTheVariableNames(t *testing.T) {
	const name = "another-server"
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(binary(t), path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(path))
	for _, program := range []string{name, path} {
		t.Setenv(programVariable, program)
		for _, s := range []*Server{Start(t), StartSentinel(t).sentinel} {
			if s.path != path {
				t.Errorf("%s: started %s, want %s", program, s.path, path)
			}
		}
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if got := s.Do("ECHO", "hello"); got != "hello" {
		t.Errorf("reply = %v, want hello", got)
	}
	got := endOf(t, func(tb testing.TB) {
		failing := &Server{tb: tb, addr: s.addr}
		failing.Do("NOSUCHCOMMAND")
	})
	if got != "fatal" {
		t.Errorf("end of the test after an error = %q, want fatal", got)
	}
}

func TestPauseResume(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client := s.ClientOptions(func(o *redis.Options) {
		o.ReadTimeout = silence
		o.MaxRetries = -1
	})
	s.Pause()
	var timeout net.Error
	if err := client.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("during the pause: %v, want a timeout", err)
	}
	s.Resume()
	if err := s.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestKillRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Do("SET", "key", "value")
	s.Kill()
	if accepts(s.Addr()) {
		t.Error("the server outlived Kill")
	}
	addr := s.Addr()
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("address = %s, want %s as before", s.Addr(), addr)
	}
	if err := s.Client().Get(t.Context(), "key").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("key after the restart: %v, want %v", err, redis.Nil)
	}
}

func TestCleanupOfPausedServer(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("test", func(t *testing.T) {
		s := Start(t)
		addr = s.Addr()
		s.Pause()
	})
	if accepts(addr) {
		t.Error("the server outlived its test")
	}
}

// proxyConn is a connection to a server through a proxy.
type proxyConn struct {
	net.Conn
	t *testing.T
}

func dialProxy(t *testing.T, p *Proxy) proxyConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return proxyConn{conn, t}
}

// proxied starts a server and a proxy in front of it, with one connection.
func proxied(t *testing.T) (*Server, *Proxy, proxyConn) {
	s := Start(t)
	p := NewProxy(t, s.Addr())
	existing := dialProxy(t, p)
	existing.wantPong()
	return s, p, existing
}

func (c proxyConn) send(command string) {
	c.t.Helper()
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		c.t.Fatalf("send %s: %v", command, err)
	}
}

func (c proxyConn) receive(timeout time.Duration) (string, error) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		c.t.Fatal(err)
	}
	reply := make([]byte, 64)
	n, err := c.Read(reply)
	return string(reply[:n]), err
}

// wantPong fails the test unless a PING is answered, with nothing before that.
func (c proxyConn) wantPong() {
	c.t.Helper()
	c.send("PING")
	if got, err := c.receive(waitTimeout); got != "+PONG\r\n" || err != nil {
		c.t.Errorf("reply to PING = %q, %v", got, err)
	}
}

// wantSilence fails the test unless the connection stays open without a reply.
func (c proxyConn) wantSilence() {
	c.t.Helper()
	if got, err := c.receive(silence); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("reply = %q, %v, want none", got, err)
	}
}

// wantClosed fails the test unless the other side closes the connection.
func (c proxyConn) wantClosed() {
	c.t.Helper()
	if got, err := c.receive(waitTimeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("reply = %q, %v, want a closed connection", got, err)
	}
}

// sendDelayed makes p hold back the reply of s to an INCR for an hour.
func (c proxyConn) sendDelayed(p *Proxy, s *Server) {
	c.t.Helper()
	p.Delay(time.Hour)
	c.send("INCR count")
	waitUntil(c.t, "the request has arrived", func() bool { return s.Do("EXISTS", "count") == int64(1) })
	c.wantSilence()
}

func TestProxyDropReplies(t *testing.T) {
	t.Parallel()
	s, p, existing := proxied(t)
	p.DropReplies()
	conns := []proxyConn{existing, dialProxy(t, p)}
	for _, conn := range conns {
		conn.send("RPUSH requests x")
		conn.wantSilence()
	}
	waitUntil(t, "both requests have arrived", func() bool { return s.Do("LLEN", "requests") == int64(2) })
	p.Pass()
	for _, conn := range conns {
		conn.wantPong()
	}
}

func TestProxyBlackHole(t *testing.T) {
	t.Parallel()
	s, p, existing := proxied(t)
	p.BlackHole()
	conns := []proxyConn{existing, dialProxy(t, p)}
	for _, conn := range conns {
		conn.send("INCR count")
		conn.wantSilence()
	}
	p.Pass()
	for _, conn := range conns {
		// The server answers in order, so it would have counted by then.
		conn.wantPong()
	}
	if got := s.Do("EXISTS", "count"); got != int64(0) {
		t.Error("a request came through the black hole")
	}
}

func TestProxyBlackHoleBeforeDeadServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	p.BlackHole()
	s.Kill()
	conn := dialProxy(t, p)
	conn.send("PING")
	conn.wantSilence()
	p.Pass()
	conn.send("PING")
	conn.wantClosed()
}

func TestProxyDelay(t *testing.T) {
	t.Parallel()
	_, p, existing := proxied(t)
	const delay = 50 * time.Millisecond
	p.Delay(delay)
	for _, conn := range []proxyConn{existing, dialProxy(t, p)} {
		begin := time.Now()
		conn.wantPong()
		if took := time.Since(begin); took < delay {
			t.Errorf("the reply took %v, want at least %v", took, delay)
		}
	}
}

func TestProxyPassReleasesDelayedReply(t *testing.T) {
	t.Parallel()
	s, p, conn := proxied(t)
	conn.sendDelayed(p, s)
	p.Pass()
	if got, err := conn.receive(waitTimeout); got != ":1\r\n" || err != nil {
		t.Errorf("reply to INCR = %q, %v", got, err)
	}
}

func TestProxyDropsDelayedReply(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*Proxy){
		"DropReplies": (*Proxy).DropReplies,
		"BlackHole":   (*Proxy).BlackHole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, conn := proxied(t)
			conn.sendDelayed(p, s)
			drop(p)
			conn.wantSilence()
			p.Pass()
			conn.wantPong()
		})
	}
}

func TestProxyCut(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	used, unused := dialProxy(t, p), dialProxy(t, p)
	used.wantPong()
	// The proxy accepts in order, so it knows unused when it answers later.
	later := dialProxy(t, p)
	later.wantPong()
	p.Cut()
	for _, conn := range []proxyConn{used, unused, later} {
		conn.wantClosed()
	}
	dialProxy(t, p).wantPong()
}

func TestProxyCutRequest(t *testing.T) {
	t.Parallel()
	s, p, existing := proxied(t)
	other := dialProxy(t, p)
	for _, conn := range []proxyConn{existing, dialProxy(t, p)} {
		// The last byte of the second request is missing.
		p.CutRequest(len("PING\r\nINCR count\r"))
		conn.wantPong()
		other.wantPong()
		conn.send("INCR count")
		conn.wantClosed()
		other.wantPong()
	}
	if got := s.Do("EXISTS", "count"); got != int64(0) {
		t.Error("a whole request came through")
	}
}

func TestProxyCutReply(t *testing.T) {
	t.Parallel()
	s, p, existing := proxied(t)
	other := dialProxy(t, p)
	conns := []proxyConn{existing, dialProxy(t, p)}
	for _, conn := range conns {
		p.CutReply(len("+PONG\r\n:"))
		conn.wantPong()
		other.wantPong()
		conn.send("INCR count")
		if got, err := conn.receive(waitTimeout); got != ":" || err != nil {
			t.Errorf("reply to INCR = %q, %v, want only its first byte", got, err)
		}
		conn.wantClosed()
		other.wantPong()
	}
	if got := s.Do("GET", "count"); got != fmt.Sprint(len(conns)) {
		t.Errorf("%v requests were served, want %d", got, len(conns))
	}
}

func TestProxyCutBeforeFirstByte(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		cut    func(*Proxy, int)
		served int64
	}{
		{"CutRequest", (*Proxy).CutRequest, 0},
		{"CutReply", (*Proxy).CutReply, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			p := NewProxy(t, s.Addr())
			conn := dialProxy(t, p)
			tt.cut(p, 0)
			conn.send("INCR count")
			conn.wantClosed()
			if got := s.Do("EXISTS", "count"); got != tt.served {
				t.Errorf("%v requests were served, want %d", got, tt.served)
			}
		})
	}
}

func TestProxyCleanup(t *testing.T) {
	t.Parallel()
	s := Start(t)
	var addr string
	var held proxyConn
	t.Run("test", func(sub *testing.T) {
		p := NewProxy(sub, s.Addr())
		addr = p.Addr()
		held = dialProxy(t, p)
		held.sendDelayed(p, s)
	})
	held.wantClosed()
	if accepts(addr) {
		t.Error("the proxy outlived its test")
	}
}
