package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestServerDiesWithTestBinary runs itself in another process, which starts a
// server and is then killed.
func TestServerDiesWithTestBinary(t *testing.T) {
	const child = "REDISTEST_CHILD"
	if os.Getenv(child) != "" {
		s := Start(t)
		fmt.Println(s.process.Pid, s.Addr())
		select {}
	}
	t.Parallel()
	binary(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTestBinary$")
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir())
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var addr string
	if _, err := fmt.Sscan(strings.TrimSpace(line), &pid, &addr); err != nil {
		t.Fatalf("the child wrote %q: %v", line, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	waitUntil(t, "the server of the killed process is gone", func() bool { return !accepts(addr) })
}
