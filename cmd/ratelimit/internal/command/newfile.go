package command

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// A newFile is written beside its place, and put there when it is whole.
type newFile struct {
	*bufio.Writer
	file *os.File
	name string // its place; "" if it is written there
}

// create begins a file. It returns nil if name is "".
func create(flag, name string) (*newFile, error) {
	if name == "" {
		return nil, nil
	}
	beside := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%s-%d", filepath.Base(name), os.Getpid()))
	open, mode := beside, os.O_CREATE|os.O_EXCL
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() { // such as /dev/stdout: nothing may take its place
		open, mode = name, os.O_TRUNC
	}
	perm := os.FileMode(0o666)
	old, err := os.Stat(name)
	if err == nil && open != name { // no more people may read the new file than the old one
		perm = old.Mode().Perm()
	}
	f, err := os.OpenFile(open, os.O_WRONLY|mode, perm)
	if err != nil {
		if failed := new(fs.PathError); errors.As(err, &failed) {
			failed.Path = show(name) // nobody has named the other file
		}
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	n := &newFile{Writer: bufio.NewWriterSize(f, 1<<18), file: f}
	if open != name {
		n.name = name
	}
	return n, nil
}

// keep puts the file in its place.
func (f *newFile) keep() error {
	err := errors.Join(f.Flush(), f.file.Close())
	if f.name != "" && err == nil {
		err = os.Rename(f.file.Name(), f.name)
	}
	if err == nil {
		f.file = nil
	}
	return err
}

// discard removes a file that was not kept.
func (f *newFile) discard() {
	if f == nil || f.file == nil {
		return
	}
	_ = f.file.Close()
	if f.name != "" {
		_ = os.Remove(f.file.Name())
	}
}

// differ returns an error if a file that is written would take the place of one that is read, or of the other one.
func (s *simulation) differ(logs *openedLogs) error {
	var reads []os.FileInfo
	for _, f := range logs.files {
		if info, err := f.Stat(); err == nil {
			reads = append(reads, info)
		}
	}
	if info, err := os.Stat(*s.policies); err == nil {
		reads = append(reads, info)
	}
	for _, to := range [][2]string{{"-html", *s.html}, {"-decisions", *s.decisions}} {
		info, err := os.Stat(to[1])
		if err == nil && slices.ContainsFunc(reads, func(read os.FileInfo) bool { return os.SameFile(info, read) }) {
			return wrongUsage("%s: %s is one of the logs, or the file of -policies: name another one", to[0], show(to[1]))
		}
	}
	info, err := os.Lstat(*s.html)
	device := err == nil && !info.Mode().IsRegular() // such as /dev/null, which takes both
	if *s.html != "" && !device && filepath.Clean(*s.html) == filepath.Clean(*s.decisions) {
		return wrongUsage("-decisions: %s is the file of -html: name another one", show(*s.decisions))
	}
	return nil
}
