package policyfile

import (
	"slices"
	"strings"
)

// known says which names exist, and which of them was probably meant by name.
func known(name string, names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	names = slices.Sorted(slices.Values(names))
	if meant := nearest(name, names); meant != "" {
		return "did you mean " + meant + "? Known: " + strings.Join(names, ", ")
	}
	return "known: " + strings.Join(names, ", ")
}

// nearest returns the one of names that differs from name by the fewest letters, "" if all differ by many.
func nearest(name string, names []string) (meant string) {
	name = strings.ToLower(name)
	if len(name) > 64 {
		return ""
	}
	least := min((len(name)+1)/2, 3) + 1
	name = strings.ReplaceAll(name, "-", "_")
	for _, n := range names {
		d := distance(name, strings.ToLower(n))
		if len(name) >= 3 && strings.HasPrefix(n, name) {
			d = min(d, 1)
		}
		if d < least {
			meant, least = n, d
		}
	}
	return meant
}

// distance returns how many letters must be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
