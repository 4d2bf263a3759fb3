package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// servers are the Redis servers of a benchmark: one, or the masters of a Cluster.
type servers []*server

type server struct {
	address string
	control *redis.Client
}

// startRedis starts servers without persistence until b ends: one, or a Cluster of several masters.
func startRedis(b *testing.B, masters int) (all servers) {
	var started []*redistest.Server
	if masters > 1 {
		started = redistest.StartCluster(b, masters).Nodes
	} else {
		started = append(started, redistest.Start(b))
	}
	for _, s := range started {
		all = append(all, &server{s.Addr(), s.Client()})
	}
	return all
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

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
