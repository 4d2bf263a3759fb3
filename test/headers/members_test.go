package headers_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/dunglas/httpsfv"
)

// A member is a member of a list in the format of the draft. Missing parameters are -1.
type member struct {
	Name       string
	Q, W, R, T int64
}

// members reads a list header with a parser of another project. It fails if the parser does not write the same bytes
// back, if a name is repeated, or if a parameter is unknown.
func members(t *testing.T, h http.Header, name string) []member {
	t.Helper()
	values := h.Values(name)
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 {
		t.Fatalf("%s is there %d times: %q", name, len(values), values)
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.Fatalf("%s: %q: %v", name, values[0], err)
	}
	if again, err := httpsfv.Marshal(list); err != nil || again != values[0] {
		t.Fatalf("%s: %q should be %q, error %v", name, values[0], again, err)
	}
	var found []member
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %q has a member that is no item", name, values[0])
		}
		policy, ok := item.Value.(string)
		if !ok {
			t.Fatalf("%s: %q has a member that is no string", name, values[0])
		}
		if slices.ContainsFunc(found, func(m member) bool { return m.Name == policy }) {
			t.Fatalf("%s: %q has %q twice", name, values[0], policy)
		}
		read := member{policy, -1, -1, -1, -1}
		into := map[string]*int64{"r": &read.R, "t": &read.T}
		if name == "RateLimit-Policy" {
			into = map[string]*int64{"q": &read.Q, "w": &read.W}
		}
		for _, key := range item.Params.Names() {
			value, _ := item.Params.Get(key)
			n, isInteger := value.(int64)
			if into[key] == nil || !isInteger || n < 0 {
				t.Fatalf("%s: %q has a parameter %s of %v", name, values[0], key, value)
			}
			*into[key] = n
		}
		found = append(found, read)
	}
	return found
}
