package ratelimit_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// maxDocLines bounds the doc comment of an exported name. What is longer belongs in a package comment or a guide.
const maxDocLines = 10

// Doc comments are valid in all public packages: each link leads to a name or guide that exists, each package comment
// has headings and an example, and no other comment is long.
func TestDocComments(t *testing.T) {
	known := make(names)
	var docs []docComment
	for _, p := range parsePackages(t, parser.ParseComments, "./...") {
		known.add(p)
		docs = append(docs, docsOf(t, p)...)
	}
	if len(docs) < 100 {
		t.Errorf("only %d doc comments", len(docs))
	}
	known.addLinked(t, docs)
	for _, d := range docs {
		for _, fault := range d.faults(known) {
			t.Errorf("%s: %s", d.name, fault)
		}
	}
}

// The rules find what they are for.
func TestFaultsOfDocComments(t *testing.T) {
	const path = "github.com/go-tokenbucket/ratelimit"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "policy.go", `package ratelimit; import "net/http"; type Policy struct{ Name http.Dir }`, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := doc.NewFromFiles(fset, []*ast.File{file}, path)
	if err != nil {
		t.Fatal(err)
	}
	known := names{"net/http": {"Handler": true}, path: {"Policy": true, "Policy.Name": true}}
	for text, want := range map[string]string{
		"Plain text, states[i], [0] and a list.":                    "",
		"See [http.Handler], [ratelimit.Policy] and [Policy.Name].": "",
		"See [Polcy].":                                                "[Polcy] is no link",
		"See [Policy.Nmae].":                                          "[Policy.Nmae] is no link",
		"See [*Polcy] and [store.Store].":                             "[*Polcy] is no link; [store.Store] is no link",
		"See [http.Handle].":                                          "[http.Handle]: net/http has no Handle",
		"See [github.com/go-tokenbucket/ratelimit.Polcy].":            "[github.com/go-tokenbucket/ratelimit.Polcy]: github.com/go-tokenbucket/ratelimit has no Polcy",
		"- a list with [Polcy] in it":                                 "[Polcy] is no link",
		"See [a guide].\n\n[a guide]: https://example.com":            "",
		"See a guide.\n\n[a guide]: https://example.com":              "nothing links to [a guide]: https://example.com",
		"See docs/bounds.md#kinds-in-the-log.":                        "",
		"See https://github.com/a/b/blob/main/docs/bound.md.":         "docs/bound.md does not exist",
		"See docs/bounds.md#log":                                      "docs/bounds.md has no heading #log",
		"A heading\n# without a blank line before it\nis no heading.": `"# without" is no heading`,
		strings.Repeat("word ", 24*maxDocLines+1):                     "11 lines: at most 10",
		strings.Repeat("line\n\n", maxDocLines):                       "",
	} {
		d := docComment{of: p, name: "X", text: text}
		if got := strings.Join(d.faults(known), "; "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	d := docComment{of: p, name: "ratelimit", text: "Package ratelimit.", isPackage: true}
	if got, want := d.faults(known), []string{"no heading", "no example"}; !slices.Equal(got, want) {
		t.Errorf("a package comment: %q, want %q", got, want)
	}
}

// go doc does not show the fields of an embedded type of another package. So the comment of Result lists them.
func TestTheCommentOfResultListsItsPromotedFields(t *testing.T) {
	var text string
	for _, p := range parsePackages(t, parser.ParseComments, ".") {
		for _, d := range docsOf(t, p) {
			if path.Base(d.name) == "Result" {
				text = d.text
			}
		}
	}
	var want []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[ratelimit.Result]()) {
		if len(field.Index) > 1 {
			want = append(want, field.Name+" "+field.Type.String())
		}
	}
	var got []string
	for _, item := range regexp.MustCompile(`(?m)^ *- (\w+ [\w.]+):`).FindAllStringSubmatch(text, -1) {
		got = append(got, item[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the comment lists %q, want %q", got, want)
	}
}

// A goPackage is a package with its files, without tests.
type goPackage struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
}

// parsePackages parses the packages that match patterns of the go command, except for programs, internal packages
// and those that have only tests.
func parsePackages(t *testing.T, mode parser.Mode, patterns ...string) (packages []goPackage) {
	t.Helper()
	args := []string{"list", "-find", "-f", `{{if ne .Name "main"}}{{$dir := .Dir}}{{.ImportPath}}{{range .GoFiles}}|{{$dir}}/{{.}}{{end}}{{end}}`}
	out, err := exec.Command("go", append(args, patterns...)...).Output()
	if err != nil {
		t.Fatalf("go list %q: %v", patterns, err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) == 1 || strings.Contains(fields[0]+"/", "/internal/") {
			continue
		}
		p := goPackage{path: fields[0], fset: token.NewFileSet()}
		for _, name := range fields[1:] {
			file, err := parser.ParseFile(p.fset, name, nil, mode|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			p.files = append(p.files, file)
		}
		packages = append(packages, p)
	}
	return packages
}

// names are the names of packages, by import path: "New", "Limiter.Take", "Policy.Name".
type names map[string]map[string]bool

func (n names) add(p goPackage) {
	of := make(map[string]bool)
	for _, f := range p.files {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				of[receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					addSpec(of, spec)
				}
			}
		}
	}
	n[p.path] = of
}

// addLinked adds the packages outside of this module that docs link to.
func (n names) addLinked(t *testing.T, docs []docComment) {
	var missing []string
	for _, d := range docs {
		for _, link := range d.links() {
			if _, ok := n[link.ImportPath]; !ok && link.ImportPath != "" {
				missing = append(missing, link.ImportPath)
			}
		}
	}
	slices.Sort(missing)
	if missing = slices.Compact(missing); len(missing) > 0 {
		for _, p := range parsePackages(t, 0, missing...) {
			n.add(p)
		}
	}
}

// receiver returns the name of a method's type and a dot, "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		default:
			return of.(*ast.Ident).Name + "."
		}
	}
}

func addSpec(of map[string]bool, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			of[name.Name] = true
		}
	case *ast.TypeSpec:
		of[s.Name.Name] = true
		var fields *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			fields = t.Fields
		case *ast.InterfaceType:
			fields = t.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				of[s.Name.Name+"."+name.Name] = true
			}
		}
	}
}

// A docComment is that of an exported name or of a package.
type docComment struct {
	of        *doc.Package
	name      string
	text      string
	isPackage bool
}

// docsOf returns the doc comments of a package and of all its exported names, also of fields. It removes the other names
// from p.
func docsOf(t *testing.T, p goPackage) (docs []docComment) {
	of, err := doc.NewFromFiles(p.fset, p.files, p.path)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name, text string) {
		docs = append(docs, docComment{of: of, name: path.Join(p.path, name), text: text})
	}
	values := func(values []*doc.Value) {
		for _, v := range values {
			add(strings.Join(v.Names, ","), v.Doc)
			for _, spec := range v.Decl.Specs {
				s := spec.(*ast.ValueSpec)
				add(s.Names[0].Name, s.Doc.Text()+s.Comment.Text())
			}
		}
	}
	funcs := func(receiver string, funcs []*doc.Func) {
		for _, f := range funcs {
			add(receiver+f.Name, f.Doc)
		}
	}
	values(of.Consts)
	values(of.Vars)
	funcs("", of.Funcs)
	for _, typ := range of.Types {
		add(typ.Name, typ.Doc)
		values(typ.Consts)
		values(typ.Vars)
		funcs("", typ.Funcs)
		funcs(typ.Name+".", typ.Methods)
		ast.Inspect(typ.Decl, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && len(field.Names) > 0 {
				add(typ.Name+"."+field.Names[0].Name, field.Doc.Text()+field.Comment.Text())
			}
			return true
		})
	}
	return append(docs, docComment{of: of, name: p.path, text: of.Doc, isPackage: true})
}

func (d docComment) parsed() *comment.Doc { return d.of.Parser().Parse(d.text) }

// lines returns how many lines of 120 columns d takes, without blank ones and those that say where links lead.
func (d docComment) lines() (n int) {
	parsed := d.parsed()
	parsed.Links = nil
	for line := range strings.Lines(string((&comment.Printer{TextWidth: 120}).Text(parsed))) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

// links returns the links to names of other packages.
func (d docComment) links() (links []*comment.DocLink) {
	walk(d.parsed(), func(text comment.Text) {
		if link, ok := text.(*comment.DocLink); ok {
			links = append(links, link)
		}
	})
	return links
}

// walk calls visit with all texts of parsed, except for code.
func walk(parsed *comment.Doc, visit func(comment.Text)) {
	var visitAll func([]comment.Text)
	visitAll = func(texts []comment.Text) {
		for _, text := range texts {
			visit(text)
			if link, ok := text.(*comment.Link); ok {
				visitAll(link.Text)
			}
		}
	}
	var visitBlocks func([]comment.Block)
	visitBlocks = func(blocks []comment.Block) {
		for _, block := range blocks {
			switch b := block.(type) {
			case *comment.Paragraph:
				visitAll(b.Text)
			case *comment.Heading:
				visitAll(b.Text)
			case *comment.List:
				for _, item := range b.Items {
					visitBlocks(item.Content)
				}
			}
		}
	}
	visitBlocks(parsed.Content)
}

var (
	// An unresolved is what would be a link if its name existed. An index, as in states[i], has a name before it.
	unresolved = regexp.MustCompile(`(?:^|[^\w\])])(\[\*?(?:[\w./-]+\.)?[A-Z]\w*(?:\.[A-Z]\w*)?\])`)
	guide      = regexp.MustCompile(`\b(docs/[\w-]+\.\w+)(?:#([\w-]+))?`)
	noHeading  = regexp.MustCompile(`(?m)^# \w+`)
)

// faults returns what is wrong with d.
func (d docComment) faults(known names) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	parsed := d.parsed()
	walk(parsed, func(text comment.Text) {
		switch x := text.(type) {
		case comment.Plain:
			for _, match := range unresolved.FindAllStringSubmatch(string(x), -1) {
				fault("%s is no link", match[1])
			}
			for _, match := range noHeading.FindAllString(string(x), -1) {
				fault("%q is no heading", match)
			}
		case *comment.DocLink:
			name := x.Name
			if x.Recv != "" {
				name = x.Recv + "." + x.Name
			}
			if of, ok := known[x.ImportPath]; x.ImportPath != "" && name != "" && !(ok && of[name]) {
				fault("[%s]: %s has no %s", plain(x.Text), x.ImportPath, name)
			}
		}
	})
	for _, def := range parsed.Links {
		if !def.Used {
			fault("nothing links to [%s]: %s", def.Text, def.URL)
		}
	}
	for _, match := range guide.FindAllStringSubmatch(d.text, -1) {
		text, err := os.ReadFile(filepath.FromSlash(match[1]))
		if err != nil {
			fault("%s does not exist", match[1])
		} else if match[2] != "" && !hasHeading(string(text), match[2]) {
			fault("%s has no heading #%s", match[1], match[2])
		}
	}
	if n := d.lines(); !d.isPackage && n > maxDocLines {
		fault("%d lines: at most %d", n, maxDocLines)
	}
	if d.isPackage && !has[*comment.Heading](parsed) {
		fault("no heading")
	}
	if d.isPackage && !has[*comment.Code](parsed) {
		fault("no example")
	}
	return faults
}

func has[T comment.Block](parsed *comment.Doc) bool {
	return slices.ContainsFunc(parsed.Content, func(b comment.Block) bool { _, ok := b.(T); return ok })
}

func plain(texts []comment.Text) (s string) {
	for _, text := range texts {
		if p, ok := text.(comment.Plain); ok {
			s += string(p)
		}
	}
	return s
}

// hasHeading reports whether a page in Markdown has a heading with that anchor, by the rules of GitHub.
func hasHeading(page, anchor string) bool {
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			slug := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case strings.ContainsRune("`'\"()[].,:;?!/&*+", r):
					return -1
				}
				return r
			}, strings.ToLower(strings.TrimSpace(title)))
			if slug == anchor {
				return true
			}
		}
	}
	return false
}
