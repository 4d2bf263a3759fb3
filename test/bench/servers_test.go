package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// servers are the Redis servers of a benchmark: one, or the masters of a Cluster.
type servers []*server

// A server is a process without persistence: redis-server, or the program named by RATELIMIT_REDIS_SERVER.
type server struct {
	address string
	control *redis.Client
}

// startRedis starts servers until b ends: one, or a Cluster of several masters. It skips b if there is no such program.
func startRedis(b *testing.B, masters int) servers {
	if masters <= 1 {
		return servers{startServer(b)}
	}
	const slots = 16384
	ctx, dir := context.Background(), b.TempDir()
	var all servers
	for i := range masters {
		s := startServer(b, "--cluster-enabled", "yes", "--cluster-config-file", filepath.Join(dir, fmt.Sprintf("nodes-%d.conf", i)))
		for _, other := range all {
			host, port, _ := net.SplitHostPort(other.address)
			check(b, s.control.ClusterMeet(ctx, host, port).Err())
		}
		check(b, s.control.ClusterAddSlotsRange(ctx, slots*i/masters, slots*(i+1)/masters-1).Err())
		all = append(all, s)
	}
	waitUntil(b, "the Cluster is complete", func() bool {
		for _, s := range all {
			info, err := s.control.ClusterInfo(ctx).Result()
			check(b, err)
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", masters)) {
				return false
			}
		}
		return true
	})
	return all
}

func startServer(b *testing.B, args ...string) *server {
	port := freePort(b)
	s := &server{address: loopback(port)}
	process := exec.Command(cmp.Or(os.Getenv("RATELIMIT_REDIS_SERVER"), "redis-server"),
		append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no"}, args...)...)
	if err := process.Start(); errors.Is(err, exec.ErrNotFound) {
		b.Skip(err)
	} else {
		check(b, err)
	}
	b.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
	})
	waitUntil(b, "redis-server answers", func() bool { // not with a client, which would log that the port is not open yet
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	s.control = redis.NewClient(&redis.Options{Addr: s.address})
	b.Cleanup(func() { s.control.Close() })
	return s
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// waitUntil waits for another process, which reports nothing.
func waitUntil(b *testing.B, what string, is func() bool) {
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("waited 30 s until %s", what)
		}
	}
}

// freePort finds a free port. The port 10,000 above it, the bus port of a cluster node, is free, too. Both are below
// the ports that the system gives to connections.
func freePort(b *testing.B) int {
	for range 100 {
		port := 10_000 + rand.IntN(10_000)
		if isFree(port) && isFree(port+10_000) {
			return port
		}
	}
	b.Fatal("no free port")
	return 0
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err == nil {
		listener.Close()
	}
	return err == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// client returns a new client until b ends, made as in the README, or with the defaults of go-redis. Limiters do not
// share clients.
func (s servers) client(b *testing.B, defaults bool) redis.UniversalClient {
	var client redis.UniversalClient
	switch {
	case len(s) > 1:
		var more []string
		for _, other := range s[1:] {
			more = append(more, "addr="+other.address)
		}
		options, err := redisstore.ClusterOptions("redis://" + s[0].address + "?" + strings.Join(more, "&"))
		check(b, err)
		client = redis.NewClusterClient(options)
	case defaults:
		client = redis.NewClient(&redis.Options{Addr: s[0].address})
	default:
		options, err := redisstore.Options("redis://" + s[0].address)
		check(b, err)
		client = redis.NewClient(options)
	}
	b.Cleanup(func() { client.Close() })
	return client
}

// cpu returns the processor time of all servers since their start.
func (s servers) cpu(b *testing.B) (sum time.Duration) {
	for _, one := range s {
		sum += time.Duration(one.info(b, "cpu", "used_cpu_sys", "used_cpu_user") * float64(time.Second))
	}
	return sum
}

// info returns the sum of fields of a section of INFO.
func (s *server) info(b *testing.B, section string, fields ...string) (sum float64) {
	text, err := s.control.Info(context.Background(), section).Result()
	check(b, err)
	for _, field := range fields {
		match := regexp.MustCompile(`(?m)^` + field + `:([\d.]+)`).FindStringSubmatch(text)
		if match == nil {
			b.Fatalf("INFO %s has no %s: %q", section, field, text)
		}
		value, err := strconv.ParseFloat(match[1], 64)
		check(b, err)
		sum += value
	}
	return sum
}
