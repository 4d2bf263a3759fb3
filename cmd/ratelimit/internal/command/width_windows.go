package command

import "golang.org/x/sys/windows"

// widthOfTerminal returns 0 if it is not known.
func widthOfTerminal(fd uintptr) int {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(fd), &info) != nil {
		return 0
	}
	return int(info.Window.Right-info.Window.Left) + 1
}
