//go:build !linux

package redistest

import "syscall"

// dieWithParent has no counterpart outside Linux: there, a server outlives a
// test binary that dies before its cleanups ran.
func dieWithParent() *syscall.SysProcAttr {
	return nil
}
