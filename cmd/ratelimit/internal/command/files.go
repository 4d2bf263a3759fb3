package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
)

// openLogs opens the logs of the command line. size is that of all, 0 if it is not known. close closes those that were
// opened, also after an error.
func openLogs(ctx context.Context, e *env) (logs []simulate.Log, size int64, close func(), err error) {
	var files []*os.File
	sized := true
	close = func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for i, name := range e.args {
		if name == "-" {
			if slices.Contains(e.args[:i], "-") {
				return nil, 0, close, wrongUsage("-: standard input is there twice")
			}
			logs = append(logs, simulate.Log{Name: "-", Reader: until(ctx, e.stdin)})
			sized = false
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, 0, close, err
		}
		files = append(files, f)
		info, err := f.Stat()
		switch {
		case err != nil:
			return nil, 0, close, err
		case info.IsDir():
			return nil, 0, close, fmt.Errorf("%s is a folder: name its files", show(name))
		case info.Mode().IsRegular():
			logs = append(logs, simulate.Log{Name: name, Reader: f})
			size += info.Size()
		default:
			logs = append(logs, simulate.Log{Name: name, Reader: until(ctx, f)})
			sized = false
		}
	}
	if !sized {
		size = 0
	}
	return logs, size, close, nil
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

// differ returns an error if a file that is written would take the place of another one. role says what that is.
func differ(flag, name, role string, others ...string) error {
	info, err := os.Stat(name)
	for _, other := range others {
		same := name != "" && filepath.Clean(name) == filepath.Clean(other)
		if also, err2 := os.Stat(other); err == nil && err2 == nil {
			same = os.SameFile(info, also) && info.Mode().IsRegular() // /dev/null takes both
		}
		if same {
			return wrongUsage("%s: %s is %s: name another one", flag, show(name), role)
		}
	}
	return nil
}

// create creates the file of a flag. It returns nil if name is "".
func create(flag, name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return f, nil
}
