package ratelimit_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/testbuild"
)

// The program of the README compiles.
func TestTheReadmesProgram(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(readme), "```go\npackage main")
	program, _, ends := strings.Cut(program, "```")
	if !found || !ends {
		t.Fatal("README.md has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte("package main"+program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", slices.Concat([]string{"vet"}, testbuild.Flags(), []string{file})...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Every test that the README names as proof is there.
func TestTheReadmeNamesTestsThatExist(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var source []byte
			source, err = os.ReadFile(path)
			tests.Write(source)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllStringSubmatch(string(readme), -1)
	if len(names) < 10 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "func "+name[1]+"(") {
			t.Errorf("%s does not exist", name[1])
		}
	}
}
