package redistest

import (
	"io"
	"os"
	"os/exec"
	"runtime"
)

// process is a running child process.
type process struct {
	*os.Process

	// exited is closed once the child is gone and all its output was written.
	exited chan struct{}
}

// startProcess runs the program at path. Its output goes to output, which must
// not be used before exited is closed.
func startProcess(path string, args []string, output io.Writer) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Stdout = output
	cmd.Stderr = output
	cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// Linux takes the thread that created the child for its parent. The Go
		// runtime may end a thread while the program goes on, and that would
		// kill the child. A locked thread lives at least as long as its
		// goroutine, and this one stays until the child has exited.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// How the child ended says nothing: a kill is the normal end.
		_ = cmd.Wait()
		close(exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &process{Process: cmd.Process, exited: exited}, nil
}

// runs reports whether the child has not exited.
func (p *process) runs() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the child, even one that is paused, and waits until it is gone.
func (p *process) kill() {
	// The only error is that the child has already exited.
	_ = p.Kill()
	<-p.exited
}
