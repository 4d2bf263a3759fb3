package code_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// The README has a program, and all programs of the README and the guides compile.
func TestProgramsOfTheGuidesCompile(t *testing.T) {
	inReadme := 0
	for _, d := range documents(t) {
		blocks, _ := d.split()
		for _, b := range blocks {
			if !b.isGo() || !b.isProgram() {
				continue
			}
			if d.name == "README.md" {
				inReadme++
			}
			t.Run(d.at(b.line), func(t *testing.T) {
				t.Parallel()
				vet(t, strings.Join(b.lines, "\n")+"\n")
			})
		}
	}
	if inReadme == 0 {
		t.Error("README.md has no program")
	}
}

func vet(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", slices.Concat([]string{"vet"}, testbuild.Flags(), []string{file})...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
