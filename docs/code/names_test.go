package code_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test, and every file with tests, that the README or a guide names is there.
func TestTheGuidesNameTestsThatExist(t *testing.T) {
	sources := testSources(t)
	named := 0
	for _, d := range documents(t) {
		n, faults := nameFaults(d, sources)
		named += n
		for _, fault := range faults {
			t.Error(fault)
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named", named)
	}
}

// testSources returns all files with tests, by their paths from root.
func testSources(t *testing.T) map[string]string {
	t.Helper()
	sources := make(map[string]string)
	files := os.DirFS(root)
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(files, name)
		sources[filepath.ToSlash(name)] = string(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Za-z0-9_]*)(…?)`")
	testFile = regexp.MustCompile("`([A-Za-z0-9_/…]+_test\\.go)`")
)

// nameFaults returns how many tests d names, and which of them are not in sources. A name that ends with an ellipsis
// stands for all tests that begin so, and an ellipsis in the name of a file for any letters.
func nameFaults(d document, sources map[string]string) (named int, faults []string) {
	_, prose := d.split()
	for i, line := range prose {
		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			named++
			end := "("
			if m[2] != "" {
				end = ""
			}
			if !hasTest(sources, "\nfunc "+m[1]+end) {
				faults = append(faults, d.at(i+1)+": "+m[1]+": no such test")
			}
		}
		for _, m := range testFile.FindAllStringSubmatch(line, -1) {
			named++
			if !hasFile(sources, strings.ReplaceAll(m[1], "…", "*")) {
				faults = append(faults, d.at(i+1)+": "+m[1]+": no such file")
			}
		}
	}
	return named, faults
}

func hasTest(sources map[string]string, start string) bool {
	for _, source := range sources {
		if strings.Contains(source, start) {
			return true
		}
	}
	return false
}

func hasFile(sources map[string]string, pattern string) bool {
	for name := range sources {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

func TestNameFaults(t *testing.T) {
	sources := map[string]string{"a/b_test.go": "package b\n\nfunc TestOne(t *testing.T) {}\n\n// func TestNone(\nfunc FuzzTwo(f *testing.F) {}\n"}
	for text, fault := range map[string]string{
		"`TestOne`, `FuzzTwo`, `a/b_test.go`": "",
		"`TestO…` and `a/…_test.go`":          "",
		"TestNowhere and `go test`":           "",
		"| a | `TestNowhere` |":               "g.md:1",
		"`TestOn`":                            "g.md:1",
		"`TestNone`":                          "g.md:1",
		"`TestTwo…`":                          "g.md:1",
		"`b_test.go`":                         "g.md:1",
		"\n`a/c_test.go`":                     "g.md:2",
	} {
		var want []string
		if fault != "" {
			want = []string{fault}
		}
		t.Run(text, func(t *testing.T) {
			_, faults := nameFaults(newDocument("g.md", text), sources)
			checkFaults(t, faults, want)
		})
	}
}
