//go:build unix

package policyfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Editors and Kubernetes replace a file, and for a moment there may be none.
func TestWatchFollowsNames(t *testing.T) {
	watch(t, before, func(w *watched) {
		w.want(asBefore, "in force")
		next := w.path + ".next"
		write(t, next, after)
		if err := os.Rename(next, w.path); err != nil {
			t.Fatal(err)
		}
		w.pass(2)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "in force")

		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.pass(5)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "level=ERROR…cannot be read…no such file")
		w.write(after)
		w.pass(5)
		w.want("api 60/1m burst 20, login 1/15m burst 6")

		if err := errors.Join(os.Remove(w.path), syscall.Mkfifo(w.path, 0o600)); err != nil {
			t.Fatal(err)
		}
		w.pass(5)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "level=ERROR…cannot be read…must be a regular file")

		data := filepath.Dir(w.path)
		for _, version := range []struct{ folder, text string }{{"v1", before}, {"v2", after}} { // as Kubernetes mounts a ConfigMap
			if err := os.Mkdir(filepath.Join(data, version.folder), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(data, version.folder, "limits.yaml"), version.text)
		}
		if err := errors.Join(os.Remove(w.path), os.Symlink("v1", data+"/..data"), os.Symlink("..data/limits.yaml", w.path)); err != nil {
			t.Fatal(err)
		}
		w.pass(2)
		w.want(asBefore, "in force")
		if err := errors.Join(os.Symlink("v2", data+"/..data_tmp"), os.Rename(data+"/..data_tmp", data+"/..data")); err != nil {
			t.Fatal(err)
		}
		w.pass(2)
		w.want("api 60/1m burst 20, login 1/15m burst 6", "in force")
	})
}
