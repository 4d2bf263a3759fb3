//go:build !unix && !windows

package command

// widthOfTerminal returns 0, because it is not known.
func widthOfTerminal(uintptr) int { return 0 }
