package main

import (
	"context"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

const providerKey = "provider:mail"

func tenantPolicy(limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: "tenant", Limit: limit, FailClosed: true}
}

func providerPolicy(limit ratelimit.Limit) ratelimit.Policy {
	return ratelimit.Policy{Name: "provider", Limit: limit, FailClosed: true}
}

// A sender sends messages within the limits.
type sender struct {
	limiter          *ratelimit.Limiter
	tenant, provider ratelimit.Policy
	log              *log.Logger
}

// fanOut sends the numbers of messages to the tenants, until stop ends. It returns how many it has not sent.
//
// Each tenant has a goroutine, so a tenant with many messages does not delay the others. One goroutine is enough: it
// reserves the tokens of one message at a time. With many, a tenant at its limit would hold many tokens of the provider
// that others could use now.
func (s *sender) fanOut(stop context.Context, messages map[string]int) (left int) {
	var senders sync.WaitGroup
	var unsent atomic.Int64
	for tenant, n := range messages {
		senders.Go(func() {
			for i := 0; i < n; {
				switch err := s.sendOne(stop, tenant, i); {
				case err == nil:
					i++
				case stop.Err() != nil: // a program with a queue would put them back here
					unsent.Add(int64(n - i))
					return
				default:
					s.log.Print(err)
					pause(stop) // because WaitAll does not block while Redis is unavailable
				}
			}
		})
	}
	senders.Wait()
	return int(unsent.Load())
}

// sendOne waits until the tenant and the provider have a token, takes both, and sends a message.
func (s *sender) sendOne(stop context.Context, tenant string, i int) error {
	ofTenant := ratelimit.Charge{Policy: s.tenant, Key: "tenant:" + tenant}
	ofProvider := ratelimit.Charge{Policy: s.provider, Key: providerKey}
	if _, err := s.limiter.WaitAll(stop, ofTenant, ofProvider); err != nil {
		return err
	}
	s.log.Printf("begin %s %d", tenant, i)
	if err := send(context.WithoutCancel(stop)); err != nil { // a stop does not interrupt the message
		return err
	}
	s.log.Printf("done %s %d", tenant, i)
	return nil
}

// send stands for the call of the provider. If it fails before it has reached the provider, [ratelimit.Limiter.Refund]
// returns the tokens of both buckets: examples/worker does so.
func send(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func pause(stop context.Context) {
	select {
	case <-time.After(300 * time.Millisecond):
	case <-stop.Done():
	}
}
