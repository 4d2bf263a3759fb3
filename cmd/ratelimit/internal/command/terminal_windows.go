package command

import (
	"io"
	"os"
	"syscall"
)

// virtualTerminal is ENABLE_VIRTUAL_TERMINAL_PROCESSING.
const virtualTerminal = 4

var setConsoleMode = syscall.NewLazyDLL("kernel32.dll").NewProc("SetConsoleMode")

// takesColours reports whether a console understands escape sequences, and turns that on. Without it, Windows would show
// the sequences as text. TERM is seldom set there.
func takesColours(w io.Writer, _ string) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	console := syscall.Handle(f.Fd())
	var mode uint32
	if err := syscall.GetConsoleMode(console, &mode); err != nil {
		return false
	}
	if mode&virtualTerminal != 0 {
		return true
	}
	on, _, _ := setConsoleMode.Call(uintptr(console), uintptr(mode|virtualTerminal))
	return on != 0
}
