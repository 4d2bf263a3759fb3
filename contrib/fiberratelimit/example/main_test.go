package main

import (
	"bufio"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The program is built and run, and does what it says.
func TestExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
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
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	address := regexp.MustCompile(`http://\S+/login`).FindString(line)
	if address == "" {
		t.Fatalf("it has printed %q, error %v", line, err)
	}
	login := func(password string) int {
		response, err := http.PostForm(address, url.Values{"password": {password}})
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for i, password := range []string{"secret", "1", "2", "3", "4", "5", "6"} {
		want := map[int]int{0: 200, 6: 429}[i]
		if want == 0 {
			want = 401
		}
		if got := login(password); got != want {
			t.Errorf("login %d: status %d, want %d", i, got, want)
		}
	}
}
