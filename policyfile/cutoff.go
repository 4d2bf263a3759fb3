package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// lost returns the faults of a file that seems to have lost a part since before, which may be nil. A YAML file that was cut
// off is often well formed.
func (f *File) lost(before *File) (faults Faults) {
	if before == nil {
		return nil
	}
	for _, m := range before.mounts {
		if name := m.Policy.Name; f.indexOf(name) < 0 && !slices.Contains(f.removed, name) {
			faults = append(faults, f.faultAtPolicies(fmt.Sprintf("policy %s is missing, which the file had before: to remove it, write removed: [%s]", name, name)))
		}
	}
	end := Fault{File: f.name, Line: strings.Count(strings.TrimSuffix(f.text, "\n"), "\n") + 1, Column: 1}
	switch {
	case len(faults) > 0, f.inBraces: // what is cut off has no closing brace
	case strings.HasSuffix(before.text, "\n") && !strings.HasSuffix(f.text, "\n"):
		end.Text = "does not end with a line feed, as the file that is in force does, as if it was cut off here: must end with one"
		faults = Faults{end}
	case strings.HasPrefix(before.text, f.text) && flowText(f.root) != flowText(before.root):
		end.Text = "is the beginning of the file that is in force, as if it was cut off here: if it is meant so, add a comment at its end"
		faults = Faults{end}
	case !f.endsWithComment():
		if fields := f.lostAtEnd(before); len(fields) > 0 {
			end.Text = fmt.Sprintf("ends with a policy that has lost fields (%s), as if it was cut off here: if it is meant so, add a comment at its end", strings.Join(fields, ", "))
			faults = Faults{end}
		}
	}
	return faults
}

// lostAtEnd returns the last fields that the policy at the end of the file had before, if it has the same ones before them.
// The same holds for lists and mappings at its end.
func (f *File) lostAtEnd(before *File) (fields []string) {
	if last := f.root.Fields[len(f.root.Fields)-1]; last.Name.Text != "policies" {
		return nil
	}
	last := len(f.nodes) - 1
	i := before.indexOf(f.mounts[last].Policy.Name)
	if i < 0 {
		return nil // a new policy
	}
	return f.lostBelow("", f.nodes[last], before.nodes[i])
}

// lostBelow returns the last fields and items that was had and now has lost, in itself or in what it ends with.
func (f *File) lostBelow(path string, now, was *yamltree.Node) (lost []string) {
	switch {
	case now.Kind != was.Kind, path != "" && f.inBrackets(now):
	case now.Kind == yamltree.Mapping && len(now.Fields) > 0:
		for j, field := range now.Fields {
			if j >= len(was.Fields) || was.Fields[j].Name.Text != field.Name.Text {
				return nil // somebody has edited it
			}
		}
		n := len(now.Fields)
		end := now.Fields[n-1]
		lost = f.lostBelow(path+end.Name.Text+".", end.Value, was.Fields[n-1].Value)
		for _, field := range was.Fields[n:] {
			lost = append(lost, path+field.Name.Text)
		}
	case now.Kind == yamltree.Sequence && len(now.Items) > 0 && len(now.Items) <= len(was.Items):
		n := len(now.Items)
		for j, item := range now.Items {
			if (j < n-1 || item.Kind == yamltree.Scalar) && flowText(item) != flowText(was.Items[j]) {
				return nil
			}
		}
		lost = f.lostBelow(path, now.Items[n-1], was.Items[n-1])
		for _, item := range was.Items[n:] {
			lost = append(lost, path+flowText(item))
		}
	}
	return lost
}

// inBrackets reports whether a node is in brackets or braces: what is cut off lacks the closing one.
func (f *File) inBrackets(node *yamltree.Node) bool {
	lines := strings.SplitN(f.text, "\n", node.Line+1)
	line := []rune(lines[node.Line-1])
	return node.Column <= len(line) && strings.ContainsRune("[{", line[node.Column-1])
}

func (f *File) endsWithComment() bool {
	text := strings.TrimRight(f.text, " \t\r\n")
	return strings.HasPrefix(strings.TrimLeft(text[strings.LastIndexByte(text, '\n')+1:], " \t"), "#")
}

func (f *File) faultAtPolicies(text string) Fault {
	at := f.root.Field("policies").Name
	return Fault{File: f.name, Line: at.Line, Column: at.Column, Field: "policies", Text: text}
}
