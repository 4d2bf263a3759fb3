package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A repository is a repository of git without changes that are not committed. Edits of release are in a separate index, so
// neither the work tree nor the user's index change.
type repository struct {
	dir string // of the work tree, absolute
	tmp string // has the index, and a zip
}

func openRepository(dir string) (*repository, error) {
	r := &repository{dir: dir}
	var err error
	if r.dir, err = r.gitOfUser("rev-parse", "--show-toplevel"); err != nil {
		return nil, err
	}
	changes, err := r.gitOfUser("status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changes != "" {
		return nil, fmt.Errorf("not all is committed: commit or remove these first, then run it again\n%s", changes)
	}
	if r.tmp, err = os.MkdirTemp("", "release-"); err != nil {
		return nil, err
	}
	if _, err := r.git("read-tree", "HEAD"); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *repository) close() { os.RemoveAll(r.tmp) }

// git runs git with the index of the release, and returns what it prints.
func (r *repository) git(args ...string) (string, error) { return r.gitInput("", args...) }

func (r *repository) gitInput(input string, args ...string) (string, error) {
	out, err := r.run([]string{"GIT_INDEX_FILE=" + filepath.Join(r.tmp, "index")}, input, args...)
	return strings.TrimSpace(out), err
}

// gitOfUser is like git, with the user's index.
func (r *repository) gitOfUser(args ...string) (string, error) {
	out, err := r.run(nil, "", args...)
	return strings.TrimSpace(out), err
}

func (r *repository) run(env []string, input string, args ...string) (string, error) {
	var out, fault bytes.Buffer
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.dir, strings.NewReader(input), &out, &fault
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(fault.String()))
	}
	return out.String(), nil
}

// read returns a file of the index.
func (r *repository) read(name string) ([]byte, error) {
	text, err := r.run([]string{"GIT_INDEX_FILE=" + filepath.Join(r.tmp, "index")}, "", "cat-file", "blob", ":"+name)
	return []byte(text), err
}

// edit changes a file of the index.
func (r *repository) edit(name string, change func([]byte) ([]byte, error)) error {
	text, err := r.read(name)
	if err != nil {
		return err
	}
	if text, err = change(text); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	blob, err := r.gitInput(string(text), "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	_, err = r.git("update-index", "--cacheinfo", "100644,"+blob+","+name)
	return err
}

// commit returns a commit of the index. No branch has it yet.
func (r *repository) commit(message, parent string) (string, error) {
	tree, err := r.git("write-tree")
	if err != nil {
		return "", err
	}
	return r.git("commit-tree", tree, "-p", parent, "-m", message)
}

// join returns a commit with the files of the commit first, behind both. With the released commit behind it, Go gives
// the branch pseudo-versions that are later than the release.
func (r *repository) join(first, second, message string) (string, error) {
	return r.git("commit-tree", first+"^{tree}", "-p", first, "-p", second, "-m", message)
}
