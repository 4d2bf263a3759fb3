package echoratelimit_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The adapter for echo v5 is the same code, except for the files version.go and version_test.go.
func TestBothVersionsAreTheSame(t *testing.T) {
	ownContext := regexp.MustCompile(`([^*"])echo\.Context\b`)
	own := map[string]bool{"version.go": true, "version_test.go": true, "versions_test.go": true}
	for _, pattern := range []string{"*.go", "example/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		ofV5, err := filepath.Glob("v5/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range ofV5 {
			if _, err := os.Stat(strings.TrimPrefix(name, "v5/")); err != nil {
				t.Error(err)
			}
		}
		for _, name := range files {
			if own[name] {
				continue
			}
			want := strings.NewReplacer(
				"labstack/echo/v4", "labstack/echo/v5",
				`contrib/echoratelimit"`, `contrib/echoratelimit/v5"`,
			).Replace(ownContext.ReplaceAllString(read(t, name), "$1*echo.Context"))
			if got := read(t, "v5/"+name); got != want {
				t.Errorf("v5/%s is not %s with the imports and the context of v5", name, name)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
