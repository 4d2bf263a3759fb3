package redistest

import "syscall"

// dieWithParent makes the kernel kill a child whose parent dies. So a test binary that panics or times out leaves no
// server behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
