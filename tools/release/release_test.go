package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// A small repository with a module of each kind. The root has no dependencies, so nothing is downloaded.
var files = map[string]string{
	"CHANGELOG.md":                    "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- All.\n",
	"LICENSE":                         "MIT\n",
	"go.mod":                          "module example.com/limit\n\ngo 1.26.0\n",
	"limit.go":                        "package limit\n",
	"contrib/adapter/go.mod":          "module example.com/limit/contrib/adapter\n\ngo 1.26.0\n\nrequire example.com/limit v0.0.0\n\nreplace example.com/limit => ../..\n",
	"contrib/adapter/go.sum":          "example.com/z v1.0.0 h1:AAAA\n",
	"contrib/adapter/adapter.go":      "package adapter\n",
	"contrib/adapter/v5/go.mod":       "module example.com/limit/contrib/adapter/v5\n\ngo 1.26.0\n\nrequire example.com/limit v0.0.0\n\nreplace example.com/limit => ../../..\n",
	"contrib/adapter/v5/go.sum":       "",
	"contrib/adapter/v5/adapter.go":   "package adapter\n",
	"test/conformance/go.mod":         "module example.com/limit/test/conformance\n\ngo 1.26.0\n\nrequire (\n\texample.com/limit v0.0.0\n\texample.com/limit/contrib/adapter v0.0.0\n)\n\nreplace example.com/limit => ../../\n\nreplace example.com/limit/contrib/adapter => ../../contrib/adapter\n",
	"test/conformance/go.sum":         "",
	"test/conformance/conformance.go": "package conformance\n",
	"contrib/adapter/example/main.go": "package main\n\nfunc main() {}\n",
}

func TestMain(m *testing.M) {
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull) // the hooks and signatures of the user
	m.Run()
}

func TestRelease(t *testing.T) {
	dir := repositoryOf(t, files)
	before := git(t, dir, "rev-parse", "HEAD")
	made, err := release(dir, "v1.2.3", now)
	if err != nil {
		t.Fatal(err)
	}

	want := []string{"v1.2.3", "contrib/adapter/v1.2.3", "contrib/adapter/v5.2.3"}
	if !slices.Equal(made.tags, want) {
		t.Errorf("tags %q, want %q", made.tags, want)
	}
	if made.branch != "main" {
		t.Errorf("branch %q, want main", made.branch)
	}
	for _, tag := range want {
		if git(t, dir, "rev-parse", tag) != git(t, dir, "rev-parse", "main^2") || git(t, dir, "rev-parse", tag+"^") != git(t, dir, "rev-parse", "main^") {
			t.Errorf("%s is not beside main", tag)
		}
	}
	if made.before != before || git(t, dir, "rev-parse", "main~2") != before || git(t, dir, "diff", "--name-only", before, "main") != "CHANGELOG.md" {
		t.Error("main has more than a change of CHANGELOG.md")
	}
	if status := git(t, dir, "status", "--porcelain"); status != "" {
		t.Errorf("the work tree has changes:\n%s", status)
	}
	if got, want := read(t, filepath.Join(dir, "CHANGELOG.md")), "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-23\n\n### Added\n\n- All.\n"; got != want {
		t.Errorf("CHANGELOG.md has\n%s\nwant\n%s", got, want)
	}
	for name, want := range map[string]string{
		"contrib/adapter/go.mod":    "module example.com/limit/contrib/adapter\n\ngo 1.26.0\n\nrequire example.com/limit v1.2.3",
		"contrib/adapter/v5/go.mod": "module example.com/limit/contrib/adapter/v5\n\ngo 1.26.0\n\nrequire example.com/limit v1.2.3",
		"test/conformance/go.mod":   "module example.com/limit/test/conformance\n\ngo 1.26.0\n\nrequire (\n\texample.com/limit v1.2.3\n\texample.com/limit/contrib/adapter v1.2.3\n)",
	} {
		if got := git(t, dir, "show", "v1.2.3:"+name); got != want {
			t.Errorf("%s has\n%s\nwant\n%s", name, got, want)
		}
	}
	sums := strings.Fields(git(t, dir, "show", "v1.2.3:contrib/adapter/go.sum"))
	if len(sums) != 9 || sums[1] != "v1.2.3" || sums[4] != "v1.2.3/go.mod" || sums[6] != "example.com/z" {
		t.Errorf("go.sum has %q", sums)
	}
}

// The first line of each error says what to do. Nothing has changed after it.
func TestNothingChangesAfterAnError(t *testing.T) {
	with := func(name, text string) map[string]string {
		changed := maps.Clone(files)
		changed[name] = text
		return changed
	}
	for name, test := range map[string]struct {
		version string
		files   map[string]string
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"malformed":        {version: "1.0.0", want: `VERSION is "1.0.0": must be like v1.2.3`},
		"short":            {version: "v1.0", want: `VERSION is "v1.0": must be like v1.2.3`},
		"build":            {version: "v1.0.0+linux", want: "must be like v1.2.3"},
		"other major":      {version: "v2.0.0", want: "must be v1"},
		"option":           {version: "--help", want: "must be like v1.2.3"},
		"twice":            {prepare: func(t *testing.T, dir string) { mustRelease(t, dir, "v1.0.0") }, want: "choose the next version"},
		"tag of a module":  {prepare: func(t *testing.T, dir string) { git(t, dir, "tag", "contrib/adapter/v5.0.0") }, want: "choose the next version"},
		"nothing changed":  {version: "v1.0.1", prepare: func(t *testing.T, dir string) { mustRelease(t, dir, "v1.0.0") }, want: "write there what has changed"},
		"dated already":    {files: with("CHANGELOG.md", "## [Unreleased]\n\n- New.\n\n## [1.0.0] - 2026-01-01\n"), want: "choose the next version"},
		"no section":       {files: with("CHANGELOG.md", "# Changelog\n"), want: "has no line ## [Unreleased]"},
		"modified":         {prepare: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "limit.go"), "package other\n") }, want: "not all is committed"},
		"untracked":        {prepare: func(t *testing.T, dir string) { write(t, filepath.Join(dir, "new.go"), "package limit\n") }, want: "not all is committed"},
		"no branch":        {prepare: func(t *testing.T, dir string) { git(t, dir, "checkout", "--quiet", "--detach") }, want: "git checkout main first"},
		"name of a file":   {files: with("testdata/fuzz/FuzzParse/nul", "x"), want: `"nul"`},
		"another replace":  {files: with("contrib/adapter/go.mod", files["contrib/adapter/go.mod"]+"\nreplace example.com/z => ../z\n"), want: "replaces example.com/z"},
		"locked":           {prepare: func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".git", "index.lock"), "") }, want: "index.lock"},
		"refusing hook":    {prepare: refuseRefs, want: "hook"},
		"not a repository": {prepare: func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, ".git")) }, want: "not a git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.files == nil {
				test.files = files
			}
			if test.version == "" {
				test.version = "v1.0.0"
			}
			dir := repositoryOf(t, test.files)
			if test.prepare != nil {
				test.prepare(t, dir)
			}
			before := stateOf(dir)
			_, err := release(dir, test.version, now)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if after := stateOf(dir); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

func refuseRefs(t *testing.T, dir string) {
	hook := filepath.Join(dir, ".git", "hooks", "reference-transaction")
	write(t, hook, "#!/bin/sh\nexit 1\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestReleaseFromAWorktree(t *testing.T) {
	dir, other := repositoryOf(t, files), t.TempDir()
	git(t, dir, "worktree", "add", "--quiet", "-b", "release-1.0", other)
	made, err := release(filepath.Join(other, "contrib"), "v1.0.0", now)
	if err != nil || made.branch != "release-1.0" {
		t.Errorf("%+v, %v", made, err)
	}
}

// What was released is before the branch, also for the next release.
func TestReleasesFollowEachOther(t *testing.T) {
	dir := repositoryOf(t, files)
	mustRelease(t, dir, "v1.0.0")
	write(t, filepath.Join(dir, changelogFile), strings.Replace(read(t, filepath.Join(dir, changelogFile)), "Unreleased]", "Unreleased]\r\n\r\n- More.", 1))
	commit(t, dir)
	mustRelease(t, dir, "v1.1.0")
	// Not git describe: among commits of one second, it may find the older tag first.
	if got := strings.Fields(git(t, dir, "tag", "--list", "v*", "--merged", "HEAD")); !slices.Equal(got, []string{"v1.0.0", "v1.1.0"}) {
		t.Errorf("these releases are before main: %q", got)
	}
	if got := git(t, dir, "show", "v1.1.0:contrib/adapter/go.sum"); strings.Contains(got, "limit v1.0.0") {
		t.Errorf("go.sum has\n%s", got)
	}
}

func mustRelease(t *testing.T, dir, version string) {
	t.Helper()
	if _, err := release(dir, version, now); err != nil {
		t.Fatal(err)
	}
}

// stateOf returns all refs, what is checked out, and what is not committed.
func stateOf(dir string) string {
	var state strings.Builder
	for _, args := range [][]string{{"for-each-ref"}, {"symbolic-ref", "HEAD"}, {"status", "--porcelain"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		state.Write(out)
	}
	return state.String()
}

func repositoryOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), text)
	}
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	commit(t, dir)
	return dir
}

// clone returns a copy of the last commit, without tags.
func clone(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "clone", "--quiet", "--no-tags", "file://"+from, ".")
	git(t, dir, "checkout", "--quiet", "-B", "main")
	return dir
}

// commit commits all files of dir, as a committer of its own.
func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "config", "user.name", "Test")
	git(t, dir, "config", "user.email", "test@example.com")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "A commit")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
