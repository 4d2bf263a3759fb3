// Package code_test has the Go code of the README and of the guides in docs, and tests that run it. Each guide has a
// file here. Code that needs a package of others is in the module test/conformance, or in the module of an adapter under
// contrib. Write the code of a guide in its file first, with a test, and then copy it into the guide.
package code_test

import (
	"go/build"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// Every block of Go in the README and the guides stands in a file of this folder, or of the module test/conformance, or of a
// module under contrib, with the same lines. Only their indentation may differ. TestProgramsOfTheGuidesCompile compiles
// whole programs.
func TestTheCodeOfTheGuidesIsCompiled(t *testing.T) {
	files := compiledFiles(t)
	for _, d := range documents(t) {
		for _, fault := range codeFaults(d, files) {
			t.Error(fault)
		}
	}
}

// codeFaults returns which blocks of Go in d do not stand in any of files.
func codeFaults(d document, files []codeFile) (faults []string) {
	blocks, _ := d.split()
	for _, b := range blocks {
		if !b.isGo() || b.isProgram() {
			continue
		}
		lines := trimLines(b.lines)
		switch {
		case len(lines) == 0:
			faults = append(faults, d.at(b.line)+": the block is empty")
		case !slices.ContainsFunc(files, func(f codeFile) bool { return f.has(lines) }):
			faults = append(faults, d.at(b.line)+": no file of docs/code, test/conformance or contrib has this code: "+lines[0])
		}
	}
	return faults
}

// A codeFile is a Go file whose lines have no indentation.
type codeFile struct {
	lines []string

	// within says of each line that it begins inside of a comment or of a string, where it is not code.
	within []bool
}

// compiledFiles returns the files of this folder and of the modules test/conformance and contrib/… that go test compiles.
func compiledFiles(t *testing.T) (files []codeFile) {
	t.Helper()
	var names []string
	for _, pattern := range []string{
		"*.go",
		root + "/test/conformance/*.go",
		root + "/contrib/*/*.go",
		root + "/contrib/*/*/*.go", // an example, or another major version
	} {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	for _, name := range names {
		if ok, err := build.Default.MatchFile(filepath.Split(name)); err != nil {
			t.Fatal(err)
		} else if !ok {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, newCodeFile(source))
	}
	return files
}

func newCodeFile(source []byte) codeFile {
	f := codeFile{lines: strings.Split(string(source), "\n")}
	for i, line := range f.lines {
		f.lines[i] = strings.TrimSpace(line)
	}
	f.within = make([]bool, len(f.lines))

	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return f
		}
		if kind != token.COMMENT && kind != token.STRING {
			continue
		}
		first := file.Line(pos) // which is also the index of the next line
		for i := range strings.Count(text, "\n") {
			f.within[first+i] = true
		}
	}
}

func (f codeFile) has(lines []string) bool {
	for i := range f.lines {
		if !f.within[i] && len(f.lines)-i >= len(lines) && slices.Equal(f.lines[i:i+len(lines)], lines) {
			return true
		}
	}
	return false
}

// trimLines returns lines without indentation, and without empty lines around them.
func trimLines(lines []string) []string {
	trimmed := make([]string, len(lines))
	for i, line := range lines {
		trimmed[i] = strings.TrimSpace(line)
	}
	for len(trimmed) > 0 && trimmed[0] == "" {
		trimmed = trimmed[1:]
	}
	for len(trimmed) > 0 && trimmed[len(trimmed)-1] == "" {
		trimmed = trimmed[:len(trimmed)-1]
	}
	return trimmed
}

func TestCodeFaults(t *testing.T) {
	files := []codeFile{newCodeFile([]byte("package p\n\nfunc f() {\n\tif a {\n\t\tb()\n\n\t\tc()\n\t}\n}\n\n/*\nd()\n*/\nvar s = `\ne()\n`\n\nvar u = `\ng\n`\n"))}
	for name, c := range map[string]struct {
		text, fault string // fault: the line of it
	}{
		"code that is there":                   {"```go\nif a {\n\tb()\n\n\tc()\n}\n```", ""},
		"with other indentation":               {"- a list\n\n  ```go\n      if a {\n    b()\n  ```", ""},
		"with empty lines around":              {"```go\n\nb()\n\n```", ""},
		"a whole string":                       {"```go\nvar u = `\ng\n`\n```", ""},
		"another language":                     {"```sh\nnowhere\n```\n```\nnowhere\n```", ""},
		"a program":                            {"```go\npackage main\n```", ""},
		"code that is not there":               {"# Title\n\n```go\nnowhere()\n```", "g.md:4"},
		"a part of a line":                     {"```go\nif a\n```", "g.md:2"},
		"an empty line less":                   {"```go\nb()\nc()\n```", "g.md:2"},
		"lines in another order":               {"```go\nc()\nb()\n```", "g.md:2"},
		"the end of a file":                    {"```go\ng\n`\n\nh()\n```", "g.md:2"},
		"a comment":                            {"```go\nd()\n```", "g.md:2"},
		"the inside of a string":               {"```go\ne()\n```", "g.md:2"},
		"an empty block":                       {"```go\n\n```", "g.md:2"},
		"golang":                               {"```golang\nnowhere()\n```", "g.md:2"},
		"Go, in capitals, with an attribute":   {"```Go {title=\"a\"}\nnowhere()\n```", "g.md:2"},
		"tildes":                               {"~~~go\nnowhere()\n~~~", "g.md:2"},
		"a longer fence":                       {"````go\nb()\n```\n````", "g.md:2"},
		"a block without an end":               {"```go\nnowhere()", "g.md:2"},
		"a block in a list":                    {"1. first\n   ```go\n   nowhere()\n   ```", "g.md:3"},
		"the second block":                     {"```go\nb()\n```\n\n```go\nnowhere()\n```", "g.md:6"},
		"a fence in a block of another":        {"~~~text\n```go\nnowhere()\n```\n~~~", ""},
		"lines that end as those of MS-DOS do": {"```go\r\nb()\r\n\r\nc()\r\n```\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if c.fault != "" {
				want = []string{c.fault}
			}
			checkFaults(t, codeFaults(newDocument("g.md", c.text), files), want)
		})
	}
}

// checkFaults compares the places that faults name.
func checkFaults(t *testing.T, faults, want []string) {
	t.Helper()
	var places []string
	for _, fault := range faults {
		place, _, _ := strings.Cut(fault, ": ")
		places = append(places, place)
	}
	if !slices.Equal(places, want) {
		t.Errorf("faults %q, want some at %q", faults, want)
	}
}

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
