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
			l.list = append(l.list, simulate.Log{Name: "-", Reader: &until{ctx: ctx, r: e.stdin}})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return l, err
		}
		l.files = append(l.files, f)
		info, err := f.Stat()
		if err != nil {
			return l, err
		}
		if info.IsDir() {
			return l, fmt.Errorf("%s is a folder: name its files", show(name))
		}
		log := simulate.Log{Name: name, Reader: f}
		if info.Mode().IsRegular() {
			log.Size = info.Size()
		} else {
			log.Reader = &until{ctx: ctx, r: f}
		}
		l.list = append(l.list, log)
	}
	return l, nil
}

// until reads from r until ctx ends, also if r blocks, as a terminal or a pipe does.
type until struct {
	ctx  context.Context
	r    io.Reader
	next chan readResult
	left []byte
	err  error
}

type readResult struct {
	p   []byte
	err error
}

func (u *until) Read(p []byte) (int, error) {
	if u.next == nil {
		u.next = make(chan readResult)
		go func() {
			for {
				buf := make([]byte, 256<<10)
				n, err := u.r.Read(buf)
				select {
				case u.next <- readResult{buf[:n], err}:
				case <-u.ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	for len(u.left) == 0 && u.err == nil {
		select {
		case r := <-u.next:
			u.left, u.err = r.p, r.err
		case <-u.ctx.Done():
			u.err = u.ctx.Err()
		}
	}
	if len(u.left) > 0 {
		n := copy(p, u.left)
		u.left = u.left[n:]
		return n, nil
	}
	return 0, u.err
}
