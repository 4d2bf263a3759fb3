// Package yamltree_test compares our reader of YAML with those of others.
package yamltree_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"go.yaml.in/yaml/v3"

	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// FuzzYAML finds texts that package yamltree reads as another tree than goccy/go-yaml and go-yaml do. What yamltree refuses
// does not count: it reads a subset. The two do not always agree, so it is enough to agree with one of them.
func FuzzYAML(f *testing.F) {
	for _, text := range yamlTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tree, faults := yamltree.Parse([]byte(text))
		if len(faults) > 0 || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !strconv.IsPrint(r) }) {
			return // JSON has more characters than go-yaml reads
		}
		got := treeOf(tree)
		text = blankTabs.ReplaceAllString(text, "")
		if byGoccy := goccyTreeOf(text); got != byGoccy {
			if byGoYAML := goYAMLTreeOf(text); got != byGoYAML {
				t.Errorf("%q: yamltree reads %s, goccy/go-yaml %s, go-yaml %s", text, got, byGoccy, byGoYAML)
			}
		}
	})
}

// blankTabs are tabs in lines that are blank or have only a comment. YAML allows them, and the others do not everywhere.
var blankTabs = regexp.MustCompile(`(?m)^ *\t[ \t]*(#.*)?$`)

// Files of policies are read in the same way by all three.
func TestReadersOfYAMLAgree(t *testing.T) {
	for _, text := range yamlTexts {
		tree, faults := yamltree.Parse([]byte(text))
		if len(faults) > 0 {
			continue
		}
		if got, byGoccy, byGoYAML := treeOf(tree), goccyTreeOf(text), goYAMLTreeOf(text); got != byGoccy || got != byGoYAML {
			t.Errorf("%q: yamltree reads %s, goccy/go-yaml %s, go-yaml %s", text, got, byGoccy, byGoYAML)
		}
	}
}

var yamlTexts = []string{
	"version: 1\npolicies:\n  - name: api\n    key: {first_of: [members, {client_ip: {trusted_proxies: [10.0.0.0/8, \"::1/128\"]}}]} # comment\n    limit: 60/1m burst 10\n  - name: login\n    on: [POST /login]\nroutes: ['GET /items/{id}']\n",
	"{\"version\": 1, \"policies\": [{\"name\": \"api\", \"shadow\": true, \"max_wait\": \"1s\"}]}",
	"a:\n- b: 1\n  c: 2\n- d\n\ne: \nf: ~\ng: null\n",
	"- - a\n  - b\n-\n  c: 1\n-\n- d",
	"a: 'it''s'\nb: \"\\u00e9\\n\"\nc: -1\nd: 1:30\ne: a#b # c\nf: 0x10\ng: 1e3\nh: .5\ni: no\nj: 2001-01-01\n",
	"---\na: [\n  1, # one\n  2\n]\nb: {c: {}, d: []}\n",
	"a: {b: , c: [x, ]}\n",
	"a:\r\n  b: c\r\n",
	"a: b:c\n'd e': f\n\"g\": h i\n? j\n: k\n",
}

func treeOf(n *yamltree.Node) string {
	var parts []string
	switch n.Kind {
	case yamltree.Sequence:
		for _, item := range n.Items {
			parts = append(parts, treeOf(item))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case yamltree.Mapping:
		for _, field := range n.Fields {
			parts = append(parts, treeOf(field.Name)+":"+treeOf(field.Value))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	if n.Plain && (n.Text == "" || n.Text == "null" || n.Text == "~" || n.Text == "Null" || n.Text == "NULL") {
		return "null"
	}
	return strconv.Quote(n.Text)
}

func goccyTreeOf(text string) string {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return "an error: " + err.Error()
	}
	if len(file.Docs) != 1 {
		return strconv.Itoa(len(file.Docs)) + " documents"
	}
	return goccyTree(file.Docs[0].Body)
}

func goccyTree(n ast.Node) string {
	var parts []string
	switch x := n.(type) {
	case nil, *ast.NullNode:
		return "null"
	case *ast.SequenceNode:
		for _, item := range x.Values {
			parts = append(parts, goccyTree(item))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *ast.MappingNode:
		for _, field := range x.Values {
			parts = append(parts, goccyTree(field))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case *ast.MappingValueNode:
		return goccyTree(x.Key) + ":" + goccyTree(x.Value)
	case *ast.StringNode:
		return strconv.Quote(x.Value)
	case *ast.CommentGroupNode:
		return "null"
	}
	return strconv.Quote(n.GetToken().Value)
}

func goYAMLTreeOf(text string) string {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "an error: " + err.Error()
	}
	if len(doc.Content) != 1 {
		return "no document"
	}
	return goYAMLTree(doc.Content[0])
}

func goYAMLTree(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, goYAMLTree(item))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, goYAMLTree(n.Content[i])+":"+goYAMLTree(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	if n.Tag == "!!null" {
		return "null"
	}
	return strconv.Quote(n.Value)
}
