package code_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// root is the folder of the module.
const root = "../.."

// A document is a Markdown file.
type document struct {
	name  string // its path from root, with slashes
	lines []string
}

// A block is what stands between two fences.
type block struct {
	line     int    // of the first line after the fence, from 1
	language string // the first word after the fence, in lower case
	lines    []string
}

// documents returns the README, first, all guides, and the other documents of the root.
func documents(t *testing.T) []document {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("docs has %d guides, error %v", len(names), err)
	}
	var read []document
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} {
		read = append(read, readDocument(t, name))
	}
	for _, name := range names {
		read = append(read, readDocument(t, "docs/"+filepath.Base(name)))
	}
	return read
}

func readDocument(t *testing.T, name string) document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return newDocument(name, string(text))
}

func newDocument(name, text string) document {
	return document{name: name, lines: strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")}
}

// at names a line for an error message.
func (d document) at(line int) string { return fmt.Sprintf("%s:%d", d.name, line) }

var fence = regexp.MustCompile("^(`{3,}|~{3,}) *([^` ]*)")

// split returns the blocks of d, and its prose: all lines, those of blocks and fences empty. A block without an end
// goes on to the end of d, as in a browser.
func (d document) split() (blocks []block, prose []string) {
	opened := ""
	for i, line := range d.lines {
		text := strings.TrimSpace(line)
		m := fence.FindStringSubmatch(text)
		switch {
		case opened == "" && m == nil:
			prose = append(prose, line)
			continue
		case opened == "":
			opened = m[1]
			blocks = append(blocks, block{line: i + 2, language: strings.ToLower(m[2])})
		case strings.HasPrefix(text, opened) && strings.Trim(text, opened[:1]) == "":
			opened = ""
		default:
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, line)
		}
		prose = append(prose, "")
	}
	return blocks, prose
}

func (b block) isGo() bool { return b.language == "go" || b.language == "golang" }

// isProgram reports whether b is a whole file.
func (b block) isProgram() bool { return len(b.lines) > 0 && strings.HasPrefix(b.lines[0], "package ") }

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	inline   = regexp.MustCompile(`\]\(<?([^()\s>]+)>?(?:\s+"[^"]*")?\)`)
	defined  = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)`)
	html     = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	named    = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	heading  = regexp.MustCompile(`^ {0,3}#{1,6} +(.*?)(?: +#+)? *$`)
	linked   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// A link is one that stands in a document.
type link struct {
	line   int
	target string
}

func (d document) links() (links []link) {
	_, prose := d.split()
	for i, line := range prose {
		line = codeSpan.ReplaceAllString(line, "")
		for _, form := range []*regexp.Regexp{inline, defined, html} {
			for _, m := range form.FindAllStringSubmatch(line, -1) {
				links = append(links, link{i + 1, m[1]})
			}
		}
	}
	return links
}

// anchors returns what links can name in d: its headings, as GitHub writes them.
func (d document) anchors() map[string]bool {
	anchors := make(map[string]bool)
	_, prose := d.split()
	for _, line := range prose {
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			anchors[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := slug(m[1])
		unique := name
		for n := 1; anchors[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		anchors[unique] = true
	}
	return anchors
}

// slug returns the anchor of a heading.
func slug(text string) string {
	text = strings.ToLower(linked.ReplaceAllString(text, "$1"))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return r
		}
		return -1
	}, text)
}

// resolve returns the file that a link in d leads to, as a path from root, and the anchor in it.
func (d document) resolve(target string) (file, anchor string) {
	file, anchor, _ = strings.Cut(target, "#")
	if file == "" {
		return d.name, anchor
	}
	return path.Join(path.Dir(d.name), file), anchor
}
