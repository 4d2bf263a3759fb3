package code_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Links of the README and the guides lead to files and headings that exist. Every guide can be reached from the README.
func TestLinksOfTheGuidesLeadSomewhere(t *testing.T) {
	all := documents(t)
	exists := func(file string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(file)))
		return err == nil
	}
	read := make(map[string]map[string]bool)
	anchors := func(file string) map[string]bool {
		if read[file] == nil {
			read[file] = readDocument(t, file).anchors()
		}
		return read[file]
	}
	for _, d := range all {
		for _, fault := range linkFaults(d, exists, anchors) {
			t.Error(fault)
		}
	}
	for _, name := range unreachable(all) {
		t.Errorf("%s: no link leads here from the README", name)
	}
}

// Each program of a module under contrib is linked from a guide, and from the comment of its package.
func TestProgramsOfTheModulesAreLinked(t *testing.T) {
	linked := make(map[string]bool)
	for _, d := range documents(t) {
		for _, l := range d.links() {
			file, _ := d.resolve(l.target)
			linked[file] = true
		}
	}
	var programs []string
	for _, pattern := range []string{"contrib/*/example/main.go", "contrib/*/*/example/main.go"} {
		found, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, found...)
	}
	if len(programs) < 6 {
		t.Errorf("only %d programs", len(programs))
	}
	for _, program := range programs {
		if !linked[program] {
			t.Errorf("%s: no guide links to it", program)
		}
		example := path.Dir(program)
		sources, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(path.Dir(example)), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(sources, func(name string) bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Contains(string(text), "/tree/main/"+example)
		})
		if !found {
			t.Errorf("%s: no comment of its package links to it", program)
		}
	}
}

// The README links each program under examples.
func TestTheReadmeLinksEachExample(t *testing.T) {
	linked := make(map[string]bool)
	readme := readDocument(t, "README.md")
	for _, l := range readme.links() {
		file, _ := readme.resolve(l.target)
		linked[file] = true
	}
	examples, err := fs.ReadDir(os.DirFS(root), "examples")
	if err != nil || len(examples) < 7 {
		t.Errorf("only %d examples, %v", len(examples), err)
	}
	for _, example := range examples {
		if program := path.Join("examples", example.Name(), "main.go"); !linked[program] {
			t.Errorf("%s: the README has no link to it", program)
		}
	}
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// linkFaults returns which links of d lead nowhere. Those to other sites are not followed.
func linkFaults(d document, exists func(file string) bool, anchors func(file string) map[string]bool) (faults []string) {
	for _, l := range d.links() {
		if scheme.MatchString(l.target) {
			continue
		}
		fault := func(text string) { faults = append(faults, d.at(l.line)+": "+l.target+": "+text) }
		file, anchor := d.resolve(l.target)
		switch {
		case strings.HasPrefix(l.target, "/") || strings.HasPrefix(file, ".."):
			fault("must be a path from this file to one of the repository")
		case !exists(file):
			fault("no such file")
		case anchor == "" && strings.HasSuffix(l.target, "#"):
			fault("names no heading")
		case anchor == "":
		case !strings.HasSuffix(file, ".md"):
			fault("only Markdown files have headings")
		case !anchors(file)[anchor]:
			fault("no such heading")
		}
	}
	return faults
}

// unreachable returns those documents to which no chain of links leads from the first.
func unreachable(all []document) (names []string) {
	links := make(map[string][]string)
	for _, d := range all {
		for _, l := range d.links() {
			file, _ := d.resolve(l.target)
			links[d.name] = append(links[d.name], file)
		}
	}
	reached := map[string]bool{all[0].name: true}
	for next := []string{all[0].name}; len(next) > 0; next = next[1:] {
		for _, name := range links[next[0]] {
			if !reached[name] {
				reached[name] = true
				next = append(next, name)
			}
		}
	}
	for _, d := range all {
		if !reached[d.name] {
			names = append(names, d.name)
		}
	}
	return names
}

func TestLinkFaults(t *testing.T) {
	files := map[string]map[string]bool{
		"docs/g.md":     nil,
		"docs/other.md": newDocument("docs/other.md", "# Other\n\n## A `Code` & more: what?\n## Twice\n## Twice\n## [A link](x)\n```sh\n# No heading\n```\n<a id=\"named\"></a>\n## Closed ##\n").anchors(),
		"README.md":     {"readme": true},
		"examples/chi":  nil,
		"docs/a.svg":    nil,
	}
	exists := func(file string) bool { _, ok := files[file]; return ok }
	for _, c := range []struct {
		text  string
		fault string
	}{
		{"[other](other.md), [README](../README.md#readme) and [chi](../examples/chi)", ""},
		{"[other](other.md#other) [code](other.md#a-code--more-what) [once](other.md#twice) [twice](other.md#twice-1)", ""},
		{"[link](other.md#a-link) [named](other.md#named) [closed](other.md#closed)", ""},
		{"![picture](a.svg) and [![picture](a.svg)](other.md \"title\")", ""},
		{"[elsewhere](https://example.com/nowhere#here), [mail](mailto:a@example.com)", ""},
		{"`[code](nowhere.md)` and ```[code](nowhere.md)```", ""},
		{"```sh\n[a](nowhere.md)\n```", ""},
		{"[ref]: other.md\n[site]: https://example.com", ""},
		{"# Here\n\n[there](#here)", ""},

		{"text\n\n[nowhere](nowhere.md)", "docs/g.md:3"},
		{"[the root's](README.md)", "docs/g.md:1"},
		{"[no heading](other.md#nowhere)", "docs/g.md:1"},
		{"[a comment](other.md#no-heading)", "docs/g.md:1"},
		{"[three times](other.md#twice-2)", "docs/g.md:1"},
		{"[in capitals](other.md#Other)", "docs/g.md:1"},
		{"[no heading here](#nowhere)", "docs/g.md:1"},
		{"[nothing](other.md#)", "docs/g.md:1"},
		{"[a picture's](a.svg#here)", "docs/g.md:1"},
		{"[from the top](/docs/other.md)", "docs/g.md:1"},
		{"[outside](../../other.md)", "docs/g.md:1"},
		{"![no picture](b.svg)", "docs/g.md:1"},
		{"[![no picture](b.svg)](other.md)", "docs/g.md:1"},
		{"[![picture](a.svg)](nowhere.md)", "docs/g.md:1"},
		{"[ref]: nowhere.md", "docs/g.md:1"},
		{"<a href=\"nowhere.md\">there</a>", "docs/g.md:1"},
		{"| a | [cell](nowhere.md) |", "docs/g.md:1"},
	} {
		d := newDocument("docs/g.md", c.text)
		files["docs/g.md"] = d.anchors()
		var want []string
		if c.fault != "" {
			want = []string{c.fault}
		}
		t.Run(c.text, func(t *testing.T) {
			checkFaults(t, linkFaults(d, exists, func(file string) map[string]bool { return files[file] }), want)
		})
	}
}

func TestUnreachableGuides(t *testing.T) {
	all := []document{
		newDocument("README.md", "[a](docs/a.md)"),
		newDocument("docs/a.md", "[b](b.md#heading)"),
		newDocument("docs/b.md", "[README](../README.md)"),
		newDocument("docs/c.md", "[c](c.md) [d](d.md)"),
		newDocument("docs/d.md", "[c](c.md)"),
	}
	checkFaults(t, unreachable(all), []string{"docs/c.md", "docs/d.md"})
}
