package ratelimit_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

func TestAcquireTakesASlotUntilItsRelease(t *testing.T) {
	jobs := ratelimit.Policy{Name: "jobs", Limit: ratelimit.Concurrency(2)}
	l := ratelimit.Must(ratelimit.New(ratelimit.Config{}))
	first, err := l.Acquire(t.Context(), jobs, "org:7")
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.Acquire(t.Context(), jobs, "org:7")
	if err != nil {
		t.Fatal(err)
	}
	release, err := l.Acquire(t.Context(), jobs, "org:7")
	var denied *ratelimit.WaitError
	if !errors.As(err, &denied) || denied.RetryAfter != time.Second || denied.Result.Limit != jobs.Limit {
		t.Errorf("the third got %v, want a WaitError", err)
	}
	release() // it has no slot
	if free(t, l, jobs, "org:7") != 0 || free(t, l, jobs, "org:8") != 2 {
		t.Error("a release without a slot released one, or another key was charged")
	}
	l.Close()
	var all sync.WaitGroup
	for range 10 {
		all.Go(first)
	}
	all.Wait()
	if n := free(t, l, jobs, "org:7"); n != 1 {
		t.Errorf("%d slots are free after ten calls of one release, want 1", n)
	}
	second()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		release, _ := l.Acquire(context.Background(), jobs, "org:7")
		defer release()
		runtime.Goexit()
	}()
	if <-ended; free(t, l, jobs, "org:7") != 2 {
		t.Error("a slot was not released")
	}
}
