//go:build unix

package command

import "golang.org/x/sys/unix"

// widthOfTerminal returns 0 if it is not known.
func widthOfTerminal(fd uintptr) int {
	size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
