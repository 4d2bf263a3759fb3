package ratetest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/dryrun"
)

// Found returns how f finds the key of r while that is explained.
func Found(t *testing.T, f ratelimit.KeyFunc, r *http.Request) *explain.Step {
	t.Helper()
	ctx, run, end := dryrun.Begin(r.Context(), r)
	defer end()
	ratelimit.FirstOf(f)(r.WithContext(ctx)) // which is not asked for a key itself
	step := run.Took()
	if step == nil {
		t.Fatal("nobody asked for a key")
	}
	return step
}

// Outline returns the names of a step and of those below it, with their keys and errors.
func Outline(s *explain.Step) string {
	var text strings.Builder
	text.WriteString(s.By)
	if s.Key != "" {
		text.WriteString(" = " + s.Key)
	}
	if s.Err != "" {
		text.WriteString(" ! " + s.Err)
	}
	for _, tried := range s.Tried {
		text.WriteString(" (" + Outline(tried) + ")")
	}
	return text.String()
}
