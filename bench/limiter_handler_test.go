package main

import (
	"context"
	"net/http"
	"testing"
	"time"
)

func TestRequestReportsWhatTheHandlerAnswered(t *testing.T) {
	var got *http.Request
	take := request(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		switch r.Header.Get(keyHeader) {
		case "member":
			w.Header().Set("X-RateLimit-Remaining", "5")
		case "refused":
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for key, want := range map[string]bool{"member": true, "refused": false} {
		if ok, err := take(ctx, key); ok != want || err != nil {
			t.Errorf("%s: allowed %v, error %v", key, ok, err)
		}
		if got.Context() != ctx {
			t.Errorf("%s: the request has not the context of its call", key)
		}
	}
	if _, err := take(ctx, "not limited"); err == nil {
		t.Error("an answer without X-RateLimit-Remaining is no error")
	}
}

func TestOwnContextsEndWithTheirCalls(t *testing.T) {
	var contexts []context.Context
	take := ownContexts(forAll(func(ctx context.Context, _ string) (bool, error) {
		contexts = append(contexts, ctx)
		return true, nil
	}))()
	for range 2 {
		take(t.Context(), "")
	}
	for i, ctx := range contexts {
		if ctx.Err() == nil {
			t.Errorf("call %d: the context goes on after the call", i)
		}
	}
	if contexts[0] == contexts[1] {
		t.Error("two calls share a context")
	}
}
