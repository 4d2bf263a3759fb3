package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var files = map[string]string{
	"CHANGELOG.md":                    "## [Unreleased]\n",
	"go.mod":                          "module example.com/limit\n\ngo 1.26.0\n",
	"limit.go":                        "package limit\n\nfunc Allow() bool { return true }\n",
	"fresh/fresh.go":                  "// Package fresh is\n// experimental.\npackage fresh\n\nfunc Allow() {}\n",
	"internal/inner/inner.go":         "package inner\n\nfunc Allow() {}\n",
	"cmd/limit/main.go":               "package main\n\nfunc Allow() {}\n\nfunc main() {}\n",
	"contrib/adapter/go.mod":          "module example.com/limit/contrib/adapter\n\ngo 1.26.0\n\nrequire example.com/limit v0.0.0\n\nreplace example.com/limit => ../..\n",
	"contrib/adapter/adapter.go":      "package adapter\n\nimport _ \"example.com/limit\"\n\ntype Config struct{ Name string }\n",
	"contrib/adapter/adapter_test.go": "package adapter\n\nfunc Allow() {}\n",
}

func TestWithoutARelease(t *testing.T) {
	dir := repositoryOf(t)
	if err := run(dir); err != nil {
		t.Error(err)
	}
}

func TestAReleaseIsMissing(t *testing.T) {
	dir := repositoryOf(t)
	write(t, dir, "CHANGELOG.md", "## [Unreleased]\n\n## [1.0.0] - 2026-01-01\n")
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "git fetch --unshallow --tags") {
		t.Errorf("got %v", err)
	}
}

func TestMain(m *testing.M) {
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull) // the hooks and signatures of the user
	m.Run()
}

func TestSinceARelease(t *testing.T) {
	for name, test := range map[string]struct {
		file, text string
		want       string // in the error; "": none
	}{
		"no change":                    {"limit.go", files["limit.go"], ""},
		"new name":                     {"limit.go", files["limit.go"] + "\nfunc Deny() {}\n", ""},
		"new field":                    {"contrib/adapter/adapter.go", "package adapter\n\ntype Config struct{ Name string; Size int }\n", ""},
		"experimental":                 {"fresh/fresh.go", "// Package fresh is experimental.\npackage fresh\n", ""},
		"internal":                     {"internal/inner/inner.go", "package inner\n", ""},
		"command":                      {"cmd/limit/main.go", "package main\n\nfunc main() {}\n", ""},
		"test":                         {"contrib/adapter/adapter_test.go", "package adapter\n", ""},
		"removed name":                 {"limit.go", "package limit\n", "incompatible changes since v1.10.0: 1:"},
		"other result":                 {"limit.go", "package limit\n\nfunc Allow() int { return 1 }\n", "changes since v1.10.0: 1"},
		"removed field":                {"contrib/adapter/adapter.go", "package adapter\n\ntype Config struct{}\n", "changes since v1.10.0: 1"},
		"experimental after a release": {"limit.go", "// Package limit is experimental.\npackage limit\n\nfunc Allow() bool { return true }\n", "changes since v1.10.0: 1"},
		"does not compile":             {"limit.go", "package limit\n\nfunc Allow() bool { return 1 }\n", "cannot use 1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repositoryOf(t)
			// As releases are: the tagged commit is beside the branch. The latest of two counts.
			for _, args := range [][]string{
				{"tag", "v1.9.0"}, {"checkout", "--quiet", "--detach"}, {"commit", "--quiet", "--allow-empty", "--message", "Release"},
				{"tag", "v1.10.0"}, {"checkout", "--quiet", "-"}, {"merge", "--quiet", "--no-ff", "--message", "Join", "v1.10.0"},
				{"tag", "v1.11.0-rc.1"}, // promises nothing
			} {
				mustGit(t, dir, args...)
			}
			write(t, dir, test.file, test.text)
			err := run(dir)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func repositoryOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, dir, name, text)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"}, {"config", "user.name", "Test"}, {"config", "user.email", "test@example.com"},
		{"add", "--all"}, {"commit", "--quiet", "--message", "A commit"},
	} {
		mustGit(t, dir, args...)
	}
	return dir
}

func mustGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := git(dir, args...); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
