package redistest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	loopback = "127.0.0.1"

	// Ports are from a range below those that the kernel gives to outgoing connections. So no client takes the port
	// of a killed server before its restart. A cluster node uses a second port, which is 10000 higher. It is outside
	// of this range and of the kernel's, too.
	firstPort    = 10000
	portCount    = 10000
	portAttempts = 5

	// probeTimeout bounds one attempt to reach a server.
	probeTimeout = time.Second
)

// Server is a redis-server process for one test.
type Server struct {
	tb      testing.TB
	path    string
	args    []string
	addr    string
	process *process
	output  bytes.Buffer
	admin   *redis.Client // of Do, once it was called
}

// Start runs a redis-server without persistence on a free port and returns when
// it answers, at most 10 s later. The args are added to its command line, such
// as "--maxmemory", "1mb"; they must leave the default user the right to INFO.
//
// The server is killed when the test ends. Its output is logged if the test
// failed.
//
// Without a redis-server on PATH, or the program that RATELIMIT_REDIS_SERVER
// names, Start skips the test. It fails the test instead if the environment
// variable RATELIMIT_REQUIRE_REDIS is not empty or CI is "true".
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	unsaved := []string{"--save", "", "--appendonly", "no", "--dir", tb.TempDir()}
	return start(tb, append(unsaved, args...))
}

// start runs redis-server with args and the options that say where to listen.
// These come last so that args cannot open the server to the network.
func start(tb testing.TB, args []string) *Server {
	tb.Helper()
	s := &Server{tb: tb, path: binary(tb)}
	tb.Cleanup(s.cleanup)
	for range portAttempts {
		port := strconv.Itoa(firstPort + rand.IntN(portCount))
		s.addr = net.JoinHostPort(loopback, port)
		s.args = slices.Concat(args, []string{"--bind", loopback, "--port", port})
		if s.run() {
			return s
		}
	}
	tb.Fatalf("redis-server exited in each of %d attempts to start it", portAttempts)
	return nil
}

// run starts the process and reports whether it serves its address. It reports false if the process exited, for
// example because the port was taken.
func (s *Server) run() bool {
	s.tb.Helper()
	p, err := startProcess(s.path, s.args, &s.output)
	if err != nil {
		s.tb.Fatalf("start redis-server: %v", err)
	}
	s.process = p
	timeout := time.After(waitTimeout)
	for !s.serves() {
		select {
		case <-p.exited:
			return false
		case <-timeout:
			s.tb.Fatalf("redis-server at %s does not answer within %v", s.addr, waitTimeout)
		case <-time.After(pollInterval):
		}
	}
	return true
}

// serves reports whether this server answers at its address. A PING is not enough: if the port was taken, another
// server may answer.
func (s *Server) serves() bool {
	// A go-redis client would log every attempt before the server listens.
	conn, err := net.DialTimeout("tcp", s.addr, probeTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return false
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if pid, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			return pid == strconv.Itoa(s.process.Pid)
		}
	}
	return false
}

func (s *Server) cleanup() {
	if s.process == nil {
		return
	}
	s.process.kill()
	if s.tb.Failed() {
		s.tb.Logf("output of redis-server at %s:\n%s", s.addr, s.output.String())
	}
}

// Addr returns the host:port that the server listens on. It stays the same over
// a Restart.
func (s *Server) Addr() string {
	return s.addr
}

// Client returns a new client with the default options of go-redis. It is
// closed when the test ends.
func (s *Server) Client() *redis.Client {
	return s.ClientOptions(func(*redis.Options) {})
}

// ClientOptions is like Client but lets modify change the options first. They
// hold the address of the server and otherwise zero values.
func (s *Server) ClientOptions(modify func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: s.addr}
	modify(options)
	client := redis.NewClient(options)
	closeOnCleanup(s.tb, client)
	return client
}

// Do sends one command as the default user, such as "CONFIG", "SET",
// "maxmemory", "1mb", and returns the reply. An error fails the test.
func (s *Server) Do(args ...any) any {
	s.tb.Helper()
	if s.admin == nil {
		s.admin = redis.NewClient(&redis.Options{Addr: s.addr})
		s.tb.Cleanup(func() {
			_ = s.admin.Close()
			s.admin = nil // for cleanups that were registered before
		})
	}
	reply, err := s.admin.Do(context.Background(), args...).Result()
	if err != nil {
		s.tb.Fatalf("redis-server at %s: %v: %v", s.addr, args, err)
	}
	return reply
}

// HasACL reports whether the server has users with individual rights. Redis has them since version 6. If the server
// has none, HasACL logs that.
func (s *Server) HasACL() bool {
	s.tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	err := client.Do(context.Background(), "ACL", "WHOAMI").Err()
	if redis.HasErrorPrefix(err, "unknown command") {
		s.tb.Log("this server has no ACL")
		return false
	}
	if err != nil {
		s.tb.Fatalf("redis-server at %s: ACL WHOAMI: %v", s.addr, err)
	}
	return true
}

// Pause stops the process with SIGSTOP until Resume. Meanwhile the kernel still accepts connections and data for the
// server, but the server answers nothing.
func (s *Server) Pause() {
	s.tb.Helper()
	if err := s.process.pause(); err != nil {
		s.tb.Fatalf("pause redis-server at %s: %v", s.addr, err)
	}
}

// Resume continues a paused process. It then also serves the requests that arrived during the pause.
func (s *Server) Resume() {
	s.tb.Helper()
	if err := s.process.resume(); err != nil {
		s.tb.Fatalf("resume redis-server at %s: %v", s.addr, err)
	}
}

// Kill ends the process with SIGKILL and returns when it is gone. All data of
// the server is lost.
func (s *Server) Kill() {
	s.process.kill()
}

// Restart starts the server again on the same port with the same arguments. If it still runs, it is killed first.
// Restart returns when the server answers, at most 10 s later. The server then has no data. A cluster node keeps its
// slots unless another node has taken its place.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if !s.run() {
		s.tb.Fatalf("redis-server at %s exited while restarting", s.addr)
	}
}

// closeOnCleanup closes client when the test ends. It ignores the error because
// the test may have closed the client already.
func closeOnCleanup(tb testing.TB, client io.Closer) {
	tb.Cleanup(func() { _ = client.Close() })
}

const (
	// waitTimeout bounds every wait for a server.
	waitTimeout  = 10 * time.Second
	pollInterval = 10 * time.Millisecond
)

// waitUntil polls condition until it holds and fails the test with what was
// waited for if it does not within waitTimeout.
func waitUntil(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(waitTimeout); !condition(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", waitTimeout, what)
		}
	}
}

// programVariable names the environment variable that says which server to run.
const programVariable = "RATELIMIT_REDIS_SERVER"

// binary returns the path of the server program. Without the program, it skips the test, or fails it as described at
// Missing.
func binary(tb testing.TB) string {
	tb.Helper()
	program := cmp.Or(os.Getenv(programVariable), "redis-server")
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	Missing(tb, program, "redis-server")
	return ""
}

// Missing skips a test because a program is not installed. It fails the test instead if the environment variable
// RATELIMIT_REQUIRE_REDIS is not empty or CI is "true". The message says to install the Debian package.
func Missing(tb testing.TB, program, debian string) {
	tb.Helper()
	missing := "no " + program + "; install it with: apt-get install " + debian
	if os.Getenv("RATELIMIT_REQUIRE_REDIS") != "" || os.Getenv("CI") == "true" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}
