// Package testprogram runs the program of a test's package in processes of its own.
package testprogram

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const env = "RATELIMIT_TEST_PROGRAM"

// Main is for TestMain. In a process that [Start] has started it calls program, and otherwise it runs the tests.
func Main(m *testing.M, program func()) {
	if os.Getenv(env) != "" {
		program()
		return
	}
	m.Run()
}

// A Program is a process of the program.
type Program struct {
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []Line
	ended chan struct{}
	err   error
}

// A Line is one that the program logged, with the default flags of package log and microseconds.
type Line struct {
	At    time.Time
	Words []string // after the time
}

// Start starts the program. It is killed when the test ends.
func Start(t *testing.T, args ...string) *Program {
	t.Helper()
	p := &Program{cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env+"=1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.add(lines.Text())
		}
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.Kill)
	return p
}

func (p *Program) add(text string) {
	const layout = "2006/01/02 15:04:05.000000"
	line := Line{Words: strings.Fields(text)}
	if len(text) > len(layout) {
		if at, err := time.ParseInLocation(layout, text[:len(layout)], time.Local); err == nil {
			line = Line{at, strings.Fields(text[len(layout):])}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

// Lines returns the lines so far that begin with first.
func (p *Program) Lines(first string) (lines []Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if len(line.Words) > 0 && line.Words[0] == first {
			lines = append(lines, line)
		}
	}
	return lines
}

var loopback = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// Address waits until the program prints an address of 127.0.0.1, and returns it, with the port.
func (p *Program) Address(t *testing.T) (address string) {
	t.Helper()
	Until(t, "the program prints its address", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.lines {
			if address == "" {
				address = loopback.FindString(strings.Join(line.Words, " "))
			}
		}
		return address != ""
	})
	return address
}

// Kill kills the process with SIGKILL, and returns when it is gone.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill() // the only error is that it has ended
	<-p.ended
}

// Signal sends a signal.
func (p *Program) Signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Errorf("%v: %v", signal, err)
	}
}

// Wait waits until the process has ended, and fails unless it ends within limit, with the exit status 0.
func (p *Program) Wait(t *testing.T, limit time.Duration) {
	t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			t.Errorf("the process ended with %v", p.err)
		}
	case <-time.After(limit):
		t.Errorf("the process has not ended after %v", limit)
	}
}

// Until waits until reached returns true, for at most 20 s.
func Until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for begin := time.Now(); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("not reached within 20 s: %s", what)
		}
	}
}
