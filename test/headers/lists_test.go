package headers_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/go-tokenbucket/ratelimit/headers"
)

// FuzzForeignLists merges a RateLimit of any bytes with ours: where it is a list of policies its members follow
// ours, and else it spoils nothing.
func FuzzForeignLists(f *testing.F) {
	f.Fuzz(func(t *testing.T, foreign string) {
		outer := `"outer";r=1;t=2`
		w := httptest.NewRecorder()
		w.Header().Set("RateLimit", outer)
		headers.Merge(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Ratelimit"] = []string{foreign}
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		want := outer
		if theirs := policiesOf(foreign); theirs != nil {
			if strings.Contains(foreign, "=@") || strings.Contains(foreign, "=%") {
				return // may be a date in a parameter that comes again, of which the parser knows the last alone
			}
			want += ", " + foreign
		}
		got := w.Header()["Ratelimit"]
		if !slices.Equal(got, []string{want}) {
			t.Fatalf("%q, want %q", got, want)
		}
		if n := len(policiesOf(got[0])); n != 1+len(policiesOf(foreign)) {
			t.Fatalf("%q has %d members", got, n)
		}
	})
}

// policiesOf returns the members of a list of strings, nil if it is none, by a parser that is not ours.
func policiesOf(list string) httpsfv.List {
	read, err := httpsfv.UnmarshalList([]string{list})
	if err != nil || len(read) == 0 {
		return nil
	}
	for _, m := range read {
		item, ok := m.(httpsfv.Item)
		if !ok {
			return nil
		}
		if _, ok := item.Value.(string); !ok {
			return nil
		}
		for _, key := range item.Params.Names() {
			switch value, _ := item.Params.Get(key); value.(type) {
			case time.Time, httpsfv.DisplayString: // which older parsers refuse
				return nil
			}
		}
	}
	return read
}
