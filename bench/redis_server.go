package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a server process without persistence: redis-server, or the program named by
// RATELIMIT_REDIS_SERVER.
type redisServer struct {
	address string
	process *exec.Cmd
	control *redis.Client
}

// startRedis starts a server with args, in addition to those of all servers here.
func startRedis(ctx context.Context, args ...string) (*redisServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &redisServer{address: loopback(port)}
	s.process = exec.CommandContext(ctx, cmp.Or(os.Getenv("RATELIMIT_REDIS_SERVER"), "redis-server"),
		append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no"}, args...)...)
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		// Not with a client, which would log that the port is not open yet.
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.control = redis.NewClient(&redis.Options{Addr: s.address, ContextTimeoutEnabled: true})
	return s, nil
}

// freePort finds a free port. The port 10,000 above it, the bus port of a cluster node, is free, too. Both are below
// the ports that the system gives to connections.
func freePort() (int, error) {
	const first, count, attempts = 10_000, 10_000, 100
	for range attempts {
		port := first + rand.IntN(count)
		if isFree(port) && isFree(port+10_000) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port in %d attempts", attempts)
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (s *redisServer) stop() {
	if s.control != nil {
		s.control.Close()
	}
	s.process.Process.Kill()
	s.process.Wait()
}

// usage asks the server, which adds a little to it.
func (s *redisServer) usage(ctx context.Context) (redisUsage, error) {
	info, err := s.control.Info(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return redisUsage{}, err
	}
	return parseUsage(info)
}
