package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// unpublished are the modules that no user compiles. They have no tags.
var unpublished = []string{"test", "test/bench", "test/conformance", "tools"}

// A module is one of the repository's.
type module struct {
	path, dir string // dir is "" for the root
	version   string // that is released
	requires  []string

	// The lines of go.sum, once all that m requires has them.
	zipSum, goModSum string
}

func (m *module) published() bool { return !slices.Contains(unpublished, m.dir) }

// modules returns all modules, each behind those that it requires.
func (r *repository) modules(version string) ([]module, error) {
	files, err := r.git("ls-files", "--cached", "--", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	var found []module
	for _, file := range strings.Fields(files) {
		text, err := r.read(file)
		if err != nil {
			return nil, err
		}
		f, err := modfile.Parse(file, text, nil)
		if err != nil {
			return nil, err
		}
		m := module{path: f.Module.Mod.Path, dir: strings.TrimPrefix(path.Dir(file), "."), version: version}
		if _, major, _ := gomodule.SplitPathVersion(m.path); major != "" {
			m.version = strings.TrimPrefix(major, "/") + strings.TrimPrefix(version, semver.Major(version))
		}
		for _, required := range f.Require {
			m.requires = append(m.requires, required.Mod.Path)
		}
		found = append(found, m)
	}
	return requiredFirst(found), nil
}

func requiredFirst(modules []module) (sorted []module) {
	has := func(path string) bool {
		return slices.ContainsFunc(sorted, func(m module) bool { return m.path == path })
	}
	var add func(m module)
	add = func(m module) {
		for _, required := range modules {
			if slices.Contains(m.requires, required.path) {
				add(required)
			}
		}
		if !has(m.path) {
			sorted = append(sorted, m)
		}
	}
	for _, m := range modules {
		add(m)
	}
	return sorted
}

// requireReleased lets m require the released versions of others: without replace, and with their sums. Then it sets the
// sums of m.
func (r *repository) requireReleased(m *module, others []module) error {
	sums := make(map[gomodule.Version]string)
	err := r.edit(path.Join(m.dir, "go.mod"), func(text []byte) ([]byte, error) {
		f, err := modfile.Parse("go.mod", text, nil)
		if err != nil {
			return nil, err
		}
		for _, other := range others {
			if !slices.Contains(m.requires, other.path) {
				continue
			}
			if err := f.AddRequire(other.path, other.version); err != nil {
				return nil, err
			}
			if err := f.DropReplace(other.path, ""); err != nil {
				return nil, err
			}
			sums[gomodule.Version{Path: other.path, Version: other.version}] = other.zipSum
			sums[gomodule.Version{Path: other.path, Version: other.version + "/go.mod"}] = other.goModSum
		}
		f.Cleanup()
		if len(f.Replace) > 0 {
			return nil, fmt.Errorf("replaces %s, which a released module cannot", f.Replace[0].Old.Path)
		}
		return f.Format()
	})
	if err != nil {
		return err
	}
	if len(sums) > 0 {
		if err := r.edit(path.Join(m.dir, "go.sum"), func(text []byte) ([]byte, error) { return withSums(text, sums) }); err != nil {
			return err
		}
	}
	if !m.published() {
		return nil
	}
	if m.goModSum, err = r.sumOfGoMod(m); err != nil {
		return err
	}
	m.zipSum, err = r.sumOfZip(m)
	return err
}

// withSums adds sums to a go.sum, in its order.
func withSums(text []byte, sums map[gomodule.Version]string) ([]byte, error) {
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %q: must be a module, a version and a sum", line)
		}
		sums[gomodule.Version{Path: fields[0], Version: fields[1]}] = fields[2]
	}
	var versions []gomodule.Version
	for v := range sums {
		versions = append(versions, v)
	}
	gomodule.Sort(versions)
	var sorted bytes.Buffer
	for _, v := range versions {
		fmt.Fprintln(&sorted, v.Path, v.Version, sums[v])
	}
	return sorted.Bytes(), nil
}

// sumOfZip returns the sum of m in the index. It returns an error if m is no valid module, for example because of the name
// of a file.
func (r *repository) sumOfZip(m *module) (string, error) {
	tree, err := r.git("write-tree")
	if err != nil {
		return "", err
	}
	file, err := os.Create(filepath.Join(r.tmp, "module.zip"))
	if err != nil {
		return "", err
	}
	defer file.Close()
	// Package zip knows a repository by its folder .git, which a work tree of git worktree has elsewhere.
	gitDir, err := r.git("rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return "", err
	}
	if err := zip.CreateFromVCS(file, gomodule.Version{Path: m.path, Version: m.version}, filepath.Dir(gitDir), tree, m.dir); err != nil {
		return "", fmt.Errorf("module %s: %w", m.path, err)
	}
	return dirhash.HashZip(file.Name(), dirhash.Hash1)
}

func (r *repository) sumOfGoMod(m *module) (string, error) {
	text, err := r.read(path.Join(m.dir, "go.mod"))
	if err != nil {
		return "", err
	}
	return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
}
