package main

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// The program is built and run as a reader would do it.
func TestExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", append(append([]string{"build"}, testbuild.Flags()...), "-o", program, ".")...).CombinedOutput(); err != nil {
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
	base := ""
	lines := bufio.NewScanner(out)
	for base == "" && lines.Scan() {
		base, _ = strings.CutPrefix(lines.Text(), "Listening: ")
		if base == lines.Text() {
			base = ""
		}
	}
	go io.Copy(io.Discard, out)
	login := func(password string) int {
		response, err := http.PostForm(base+"/login", url.Values{"password": {password}})
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	for range 6 {
		if got := login("sesame"); got != 200 {
			t.Errorf("the right password: status %d", got)
		}
	}
	for i := range 6 {
		want := 401
		if i == 5 {
			want = 429
		}
		if got := login("guess"); got != want {
			t.Errorf("failed login %d: status %d, want %d", i+1, got, want)
		}
	}
	response, err := http.Get(base + "/items/5")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != `{"id":"5","requestsLeft":29}` {
		t.Errorf("body %q, error %v", body, err)
	}
}
