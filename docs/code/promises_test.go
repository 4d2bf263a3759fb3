package code_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of servers in the guide is the matrix of the workflow.
func TestTheGuideListsTheServersOfCI(t *testing.T) {
	workflow := strings.Join(readDocument(t, ".github/workflows/test.yml").lines, "\n")
	servers := make(map[string][]string)
	for _, m := range regexp.MustCompile(`\{ server: (\w+), .*?version: ([0-9.]+)`).FindAllStringSubmatch(workflow, -1) {
		servers[m[1]] = append(servers[m[1]], m[2])
	}
	if len(servers) != 2 {
		t.Fatalf("the workflow runs the tests on %v", servers)
	}
	guide := readDocument(t, "docs/operations.md").lines
	for server, name := range map[string]string{"redis": "Redis", "valkey": "Valkey"} {
		if row := "| " + name + " | " + strings.Join(servers[server], ", ") + " |"; !slices.Contains(guide, row) {
			t.Errorf("docs/operations.md lacks the row %q", row)
		}
	}
}

// The guide lists all packages, and no others, whose comment says in its first paragraph that they are experimental.
func TestTheGuideListsTheExperimentalPackages(t *testing.T) {
	var listed []string
	_, section, _ := strings.Cut(strings.Join(readDocument(t, "docs/guarantees.md").lines, "\n"), "### Experimental\n")
	section, _, _ = strings.Cut(section, "\n###")
	for _, m := range regexp.MustCompile("(?m)^- .*?(?:Package|command) `([a-z/]+)`").FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	if said := experimentalPackages(t); len(said) == 0 || !slices.Equal(said, listed) {
		t.Errorf("the comments of %v say experimental, docs/guarantees.md lists %v", said, listed)
	}
}

// experimentalPackages returns the folders of packages whose comments begin with a paragraph that says experimental.
func experimentalPackages(t *testing.T) (folders []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(name)), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		if first, _, _ := strings.Cut(file.Doc.Text(), "\n\n"); strings.Contains(first, "experimental") {
			folders = append(folders, path.Dir(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(folders)
	return folders
}
