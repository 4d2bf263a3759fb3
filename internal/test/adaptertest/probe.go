package adaptertest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// A probe is a test of a check that is expected to fail. It keeps what the check complains of.
type probe struct {
	testing.TB
	mu         sync.Mutex
	complaints []string
}

// do runs f, which may end its goroutine, as Fatal does.
func (p *probe) do(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

func (p *probe) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, text)
}

func (p *probe) Error(args ...any)                 { p.complain(fmt.Sprint(args...)) }
func (p *probe) Errorf(format string, args ...any) { p.complain(fmt.Sprintf(format, args...)) }
func (p *probe) Fail()                             { p.complain("Fail") }
func (p *probe) FailNow()                          { p.Fail(); runtime.Goexit() }
func (p *probe) Fatal(args ...any)                 { p.Error(args...); runtime.Goexit() }
func (p *probe) Fatalf(format string, args ...any) { p.Errorf(format, args...); runtime.Goexit() }

func (p *probe) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.complaints) > 0
}
