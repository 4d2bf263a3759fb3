package command

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
)

// openedLogs are the logs of the command line.
type openedLogs struct {
	list  []simulate.Log
	files []*os.File
}

func (l *openedLogs) close() {
	for _, f := range l.files {
		_ = f.Close()
	}
}

func openLogs(ctx context.Context, e *env) (*openedLogs, error) {
	l := new(openedLogs)
	stdin := false
	for _, name := range e.args {
		if name == "-" {
			if stdin {
				return l, wrongUsage("-: standard input is there twice")
			}
			stdin = true
			l.list = append(l.list, simulate.Log{Name: "-", Reader: until(ctx, e.stdin)})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return l, err
		}
		l.files = append(l.files, f)
		info, err := f.Stat()
		switch {
		case err != nil:
			return l, err
		case info.IsDir():
			return l, fmt.Errorf("%s is a folder: name its files", show(name))
		case info.Mode().IsRegular():
			l.list = append(l.list, simulate.Log{Name: name, Reader: f, Size: info.Size()})
		default:
			l.list = append(l.list, simulate.Log{Name: name, Reader: until(ctx, f)})
		}
	}
	return l, nil
}

// until reads from r until ctx ends, also if r blocks, as a terminal or a pipe does.
func until(ctx context.Context, r io.Reader) io.Reader {
	from, to := io.Pipe()
	context.AfterFunc(ctx, func() { to.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(to, r)
		to.CloseWithError(err)
	}()
	return from
}
