package command_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// The program itself passes on arguments, streams and the exit status. An interrupt ends a simulation with the report of
// what was read until then.
func TestProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ratelimit")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	args := append(append([]string{"build"}, testbuild.Flags()...), "-o", program, "github.com/go-tokenbucket/ratelimit/cmd/ratelimit")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command(program, "help").Output()
	if err != nil || !strings.Contains(string(out), "simulate  ") {
		t.Errorf("help: %v\n%s", err, out)
	}
	if err := exec.Command(program, "nothing").Run(); statusOf(err) != 2 {
		t.Errorf("a command that does not exist: %v, want status 2", err)
	}

	if runtime.GOOS == "windows" { // no process can interrupt another one there
		return
	}
	cmd := exec.Command(program, "simulate", "-policies", file(t, "limits.yaml", limitsFile), "-json", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	cmd.Stdout = &report
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	errs := bufio.NewReader(stderr)
	if first, err := errs.ReadString('\n'); err != nil || !strings.Contains(first, "memory") {
		t.Errorf("the first line is %q, %v", first, err)
	}
	if _, err := io.WriteString(in, strings.Repeat(logLine, 5)); err != nil { // and the log goes on
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // until the lines are read; the test is right without, too
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(errs)
	if err := cmd.Wait(); statusOf(err) != 130 {
		t.Errorf("after an interrupt: %v, want status 130\n%s", err, rest)
	}
	if !strings.Contains(string(rest), "interrupted") || !strings.Contains(report.String(), `"incomplete": true`) {
		t.Errorf("after an interrupt:\n%s\n%s", rest, report.String())
	}
}

func statusOf(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
