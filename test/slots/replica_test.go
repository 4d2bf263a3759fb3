//go:build unix

// Package slots tests concurrency limits over replicas that are killed, stopped and cut off.
package slots_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

func TestMain(m *testing.M) { testprogram.Main(m, replica) }

// policies are those of all replicas. Their callers are refused in an outage, because a slot that no store has granted is none.
var policies = []ratelimit.Policy{
	{Name: "exports", Limit: ratelimit.Concurrency(3), FailClosed: true},
	{Name: "searches", Limit: ratelimit.Concurrency(8), FailClosed: true, MaxWait: 500 * time.Millisecond},
	{Name: "sockets", Limit: ratelimit.Concurrency(15), FailClosed: true},
}

var keys = []string{"member:1", "member:2"}

// replica is the program of a replica. Its arguments are the address of Redis, the number of callers and the lease. It prints a
// line after it has taken a slot, and one before it releases it: a sign, the policy, the key and a number.
func replica() {
	log.SetOutput(os.Stdout)
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	callers, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	lease, err := time.ParseDuration(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	o, err := redisstore.Options("redis://" + os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	lost := slog.New(slog.NewTextHandler(os.Stdout, nil))
	slots := ratelimit.Must(redisstore.New(redis.NewClient(o), redisstore.Config{SlotLease: lease, Logger: lost}))
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: slots, Timeout: time.Second, Logger: slog.New(slog.DiscardHandler),
		Observe: func(_ context.Context, e *ratelimit.Event) {
			if e.Op == "expired" {
				log.Println("expired", e.Results[0].Policy)
			}
		},
	}))
	for i := range callers {
		go work(l, i, lease)
	}
	log.Println("works")
	select {}
}

// work takes slots, holds them and releases them. Some are held for longer than the lease.
func work(l *ratelimit.Limiter, caller int, lease time.Duration) {
	for n := 0; ; n++ {
		p, key := policies[rand.IntN(len(policies))], keys[rand.IntN(len(keys))]
		release, err := l.Acquire(context.Background(), p, key)
		if err != nil {
			time.Sleep(time.Duration(5+rand.IntN(50)) * time.Millisecond)
			continue
		}
		name := fmt.Sprint(caller, ".", n)
		log.Println("+", p.Name, key, name)
		held := time.Duration(20+rand.IntN(400)) * time.Millisecond
		if rand.IntN(20) == 0 {
			held = 3 * lease / 2
		}
		time.Sleep(held)
		log.Println("-", p.Name, key, name)
		release()
		if n%7 == 0 {
			release() // twice
		}
	}
}
