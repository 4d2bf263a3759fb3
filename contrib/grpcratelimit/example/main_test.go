package main

import (
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

func TestExample(t *testing.T) {
	server := testprogram.Start(t, "-addr", "127.0.0.1:0").Address(t)
	start := time.Now()
	client := testprogram.Start(t, "-call", server)
	client.Wait(t, 20*time.Second)
	if n := len(client.Lines("SERVING")); n != 8 || time.Since(start) < 500*time.Millisecond {
		t.Errorf("%d replies after %v, want 8", n, time.Since(start))
	}
}
