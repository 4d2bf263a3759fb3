package main

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// start builds and runs the program, and returns its URL.
func start(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "example.exe")
	if out, err := exec.Command("go", append([]string{"build", "-o", program}, append(testbuild.Flags(), ".")...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	address := regexp.MustCompile(`http://[^/]+`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if base := address.FindString(lines.Text()); base != "" {
			return base
		}
	}
	t.Fatal("it prints no address")
	return ""
}

func TestTheExampleRuns(t *testing.T) {
	base := start(t)
	get := func(path string) (*http.Response, error) { return http.Get(base + path) }
	login := func(password string) func(string) (*http.Response, error) {
		return func(path string) (*http.Response, error) {
			return http.PostForm(base+path, url.Values{"password": {password}})
		}
	}
	for _, tt := range []struct {
		send   func(path string) (*http.Response, error)
		path   string
		status int
		body   string
	}{
		{login("secret"), "/login", 200, "welcome"},
		{login("wrong"), "/login", 401, "wrong password"},
		{login("wrong"), "/login", 401, "wrong password"},
		{login("secret"), "/login", 429, "quota-exceeded"},
		{get, "/hello", 200, "hello"},
	} {
		response, err := tt.send(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
			t.Fatalf("%s: %d %s, want %d with %q", tt.path, response.StatusCode, body, tt.status, tt.body)
		}
	}
	// The limit of all requests is for the address, whatever the path.
	for range 20 {
		response, err := get("/items/7")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("20 requests at once were not denied")
}
