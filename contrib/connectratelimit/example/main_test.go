package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

func TestExample(t *testing.T) {
	base := "http://" + testprogram.Start(t, "-addr", "127.0.0.1:0").Address(t)
	for _, tt := range []struct {
		procedure, message string
		status             int
		body               string
	}{
		{"Hello", `"gopher"`, 200, "Hello, gopher"},
		{"Login", `"secret"`, 200, "welcome"},
		{"Login", `"wrong"`, 401, "unauthenticated"},
		{"Login", `"wrong"`, 401, "unauthenticated"},
		{"Login", `"secret"`, 429, "resource_exhausted"},
	} {
		status, body := post(t, base+"/acme.v1.Greeter/"+tt.procedure, tt.message)
		if status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s: %d %s, want %d with %q", tt.procedure, tt.message, status, body, tt.status, tt.body)
		}
	}
	denied := false
	for i := 0; i < 20 && !denied; i++ {
		status, _ := post(t, base+"/acme.v1.Greeter/Hello", `"gopher"`)
		denied = status == http.StatusTooManyRequests
	}
	if !denied {
		t.Error("20 calls at once were not denied")
	}
}

func post(t *testing.T, url, message string) (status int, body string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
