package echoratelimit_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files of v5")

// The adapter for echo v5 is generated from this one, except for the files version.go, version_test.go and go.mod.
func TestV5IsGenerated(t *testing.T) {
	own := map[string]bool{"version.go": true, "version_test.go": true, "v5_test.go": true}
	generated := make(map[string]bool)
	for _, name := range glob(t, "") {
		if own[name] {
			continue
		}
		generated[name] = true
		want := "// Code generated from " + filepath.ToSlash(name) + " of echo v4 by go test -update there; DO NOT EDIT.\n\n" + ofV5(read(t, name))
		if *update {
			if err := os.WriteFile(filepath.Join("v5", name), []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, filepath.Join("v5", name)) != want {
			t.Errorf("v5/%s is not up to date: run go test -update", name)
		}
	}
	for _, name := range glob(t, "v5") {
		if !generated[name] && !own[name] {
			t.Errorf("v5/%s is generated from no file", name)
		}
	}
}

// glob returns the names of the Go files in a folder.
func glob(t *testing.T, folder string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.go", "example/*.go"} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s in %q: %d files, %v", pattern, folder, len(files), err)
		}
		for _, file := range files {
			name, err := filepath.Rel(filepath.Join(".", folder), file)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
	}
	return names
}

var contextOfV4 = regexp.MustCompile(`([^*"])echo\.Context\b`)

// ofV5 returns a text for echo v4 with the imports and the context of v5.
func ofV5(text string) string {
	return strings.NewReplacer(
		"labstack/echo/v4", "labstack/echo/v5",
		`contrib/echoratelimit"`, `contrib/echoratelimit/v5"`,
	).Replace(contextOfV4.ReplaceAllString(text, "$1*echo.Context"))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
