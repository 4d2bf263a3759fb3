//go:build unix

package redistest

import "syscall"

func (p *process) pause() error {
	return p.Signal(syscall.SIGSTOP)
}

func (p *process) resume() error {
	return p.Signal(syscall.SIGCONT)
}
