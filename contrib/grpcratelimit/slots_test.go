package grpcratelimit_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit"
)

// A call of any kind holds its slot until its handler has returned or panicked.
func TestASlotIsHeldWhileACallRuns(t *testing.T) {
	for _, k := range kinds {
		for name, end := range map[string]func() error{
			"returns": func() error { return nil },
			"fails":   func() error { return status.Error(codes.Unauthenticated, "wrong password") },
			"panics":  func() error { panic("boom") },
		} {
			t.Run(string(k)+" that "+name, func(t *testing.T) {
				policy := perIP("slots", ratelimit.Concurrency(1))
				l := newLimiter(t, ratelimit.Config{})
				running, ends := make(chan struct{}), make(chan struct{})
				conn, _ := serve(t, func(context.Context) error {
					running <- struct{}{}
					<-ends
					return end()
				}, slices.Concat(chained(recovery()...), limited(l, policy)))
				ended := make(chan reply, 1)
				go func() { ended <- callWith(t.Context(), conn, k, 1) }()
				<-running
				r := call(t, conn, k)
				retry, quota := details(t, r.err)
				if r.code() != codes.ResourceExhausted || status.Convert(r.err).Message() != "too many requests at once" || retry.GetRetryDelay().AsDuration() != time.Second || len(quota.GetViolations()) != 1 {
					t.Errorf("a second call: %v, %v, %v", r.err, retry, quota)
				}
				if only(t, r.trailer, "retry-after") != "1" || only(t, r.trailer, "x-ratelimit-limit") != "1" || len(r.trailer["x-ratelimit-reset"]) != 0 {
					t.Errorf("a second call: %v", r.trailer)
				}
				close(ends)
				<-ended
				go func() { ended <- callWith(t.Context(), conn, k, 1) }()
				<-running // in time, because the first call has ended
				<-ended
				if b, err := l.Peek(t.Context(), policy, "ip:127.0.0.1"); err != nil || b.Remaining != 1 {
					t.Errorf("%+v, %v", b, err)
				}
			})
		}
	}
}
