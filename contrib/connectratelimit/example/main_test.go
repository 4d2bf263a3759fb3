package main

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// The program is built and run as a reader would.
func TestExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "example")
	build := exec.Command("go", append(append([]string{"build"}, testbuild.Flags()...), "-o", program, ".")...)
	if out, err := build.CombinedOutput(); err != nil {
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
	var base string
	for lines := bufio.NewScanner(out); base == "" && lines.Scan(); {
		base = regexp.MustCompile(`http://[^/]+`).FindString(lines.Text())
	}
	if base == "" {
		t.Fatal("it prints no address")
	}

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
