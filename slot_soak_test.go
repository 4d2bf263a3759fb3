package ratelimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// Requests that return, panic, exit or are cancelled, and jobs beside them, while policies are reloaded: no more than n run at
// once for a key, and in the end all slots are free.
func TestSoakOfSlots(t *testing.T) {
	const keys, most = 4, 3
	user := func(r *http.Request) (string, error) { return "member:" + r.Header.Get("X-User"), nil }
	policy := func(n int64, maxWait time.Duration) ratelimit.Policy {
		return ratelimit.Policy{Name: "exports", Key: user, Limit: ratelimit.Concurrency(n), MaxWait: maxWait}
	}
	all := ratelimit.Policy{Name: "all", Key: ratelimit.Static("all"), Limit: ratelimit.Concurrency(keys * most), MaxWait: time.Millisecond}
	rate := ratelimit.Policy{Name: "rate", Key: ratelimit.Static("all"), Limit: ratelimit.PerSecond(100_000), MaxWait: time.Millisecond}
	p := policy(most, 20*time.Millisecond)
	l := newLimiter(t, ratelimit.Config{Logger: slog.New(slog.DiscardHandler)})
	var running [keys]atomic.Int64
	var ran atomic.Int64
	work := func(key int, r *rand.Rand) {
		defer running[key].Add(-1)
		if n := running[key].Add(1); n > most {
			t.Errorf("%d run at once for a key", n)
		}
		ran.Add(1)
		switch r.IntN(5) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			runtime.Goexit()
		case 2:
			time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
		default:
			runtime.Gosched()
		}
	}
	type workKey struct{}
	h := l.Limit(p, all, rate)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.Context().Value(workKey{}).(func())()
	}))
	once := func(r *rand.Rand) {
		defer func() { recover() }()
		key := r.IntN(keys)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if r.IntN(4) == 0 {
			time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
		}
		if r.IntN(4) == 0 {
			release, err := l.Acquire(ctx, p, fmt.Sprintf("member:%d", key))
			defer release()
			if err == nil {
				work(key, r)
			}
			return
		}
		request := httptest.NewRequest("GET", "/", nil).WithContext(context.WithValue(ctx, workKey{}, func() { work(key, r) }))
		request.Header.Set("X-User", fmt.Sprint(key))
		h.ServeHTTP(httptest.NewRecorder(), request)
	}
	var workers sync.WaitGroup
	for seed := range uint64(32) {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(seed, 31))
			for range testsize.Of(100, 1000) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					once(r)
				}()
				<-done
			}
		})
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	for n := int64(0); ; n++ {
		if err := l.Reload(policy(1+n%most, time.Duration(n%2)*10*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			l.Reload(p)
			for key := range keys {
				if n := free(t, l, p, fmt.Sprintf("member:%d", key)); n != most {
					t.Errorf("%d slots of a key are free, want %d", n, most)
				}
			}
			if n := free(t, l, all, "static:all"); n != keys*most || ran.Load() < 100 {
				t.Errorf("%d slots of all are free, want %d; %d handlers ran", n, keys*most, ran.Load())
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}
