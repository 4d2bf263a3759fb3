package command_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
)

func TestWidthOfTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 73}); err != nil {
		t.Fatal(err)
	}
	for columns, want := range map[string]int{"": 73, "50": 50} {
		if got := command.WidthOf(terminal, func(string) string { return columns }); got != want {
			t.Errorf("%d columns, want %d", got, want)
		}
	}
}
