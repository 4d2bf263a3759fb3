package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// The program is built and run as a reader would.
func TestExample(t *testing.T) {
	program := filepath.Join(t.TempDir(), "example")
	build := exec.Command("go", append(append([]string{"build"}, testbuild.Flags()...), "-o", program, ".")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "Listening: ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}

	start := time.Now()
	printed, err := exec.CommandContext(t.Context(), program, "-call", addr).CombinedOutput()
	if err != nil || strings.Count(string(printed), "SERVING after") != 8 || time.Since(start) < 500*time.Millisecond {
		t.Errorf("%v after %v\n%s", err, time.Since(start), printed)
	}
}
