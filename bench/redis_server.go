package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a process of our own, without persistence: redis-server, or the program that
// RATELIMIT_REDIS_SERVER names.
type redisServer struct {
	address string
	process *exec.Cmd
	control *redis.Client
}

func startRedis(ctx context.Context) (*redisServer, error) {
	// It finds a free port by taking one and giving it back.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().(*net.TCPAddr)
	listener.Close()

	s := &redisServer{address: address.String()}
	s.process = exec.CommandContext(ctx, cmp.Or(os.Getenv("RATELIMIT_REDIS_SERVER"), "redis-server"), "--bind", "127.0.0.1", "--port", strconv.Itoa(address.Port), "--save", "", "--appendonly", "no")
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		// A client would log that nobody listens yet.
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
	s.control = s.client()
	return s, nil
}

func (s *redisServer) stop() {
	if s.control != nil {
		s.control.Close()
	}
	s.process.Process.Kill()
	s.process.Wait()
}

// client returns a client as the README makes it, for both sides.
func (s *redisServer) client() *redis.Client { return newClient(s.address) }

func newClient(address string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
}

// redisUsage is what a server has used up since its start.
type redisUsage struct {
	cpu    time.Duration
	script time.Duration // by the wall, the commands that scripts call included
}

// usage asks the server, which costs it a little, too.
func (s *redisServer) usage(ctx context.Context) (redisUsage, error) {
	info, err := s.control.Info(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return redisUsage{}, err
	}
	var u redisUsage
	for _, match := range usageFields.FindAllStringSubmatch(info, -1) {
		value, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return redisUsage{}, fmt.Errorf("INFO: %q: %w", match[0], err)
		}
		if match[1] == "cmdstat_evalsha:calls" {
			u.script += time.Duration(value * float64(time.Microsecond))
		} else {
			u.cpu += time.Duration(value * float64(time.Second))
		}
	}
	return u, nil
}

// "used_cpu_sys:0.1", "cmdstat_evalsha:calls=3,usec=27,usec_per_call=9.00"
var usageFields = regexp.MustCompile(`(?m)^(used_cpu_sys|used_cpu_user|cmdstat_evalsha:calls)(?:=\d+,usec=|:)([\d.]+)`)
