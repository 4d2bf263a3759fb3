package ratelimit_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The arrows between packages run one way. In particular a user of the memory store compiles no Redis
// client, and nobody gets net/http/pprof, which chi's middleware package imports and which shows itself on
// http.DefaultServeMux unasked, or the three megabytes of html/template without a page of his own.
func TestArrows(t *testing.T) {
	const module = "github.com/go-tokenbucket/ratelimit"
	deps := dependencies(t)
	for pkg, forbidden := range map[string][]string{
		"":                   {"github.com/redis/", "/store/redisstore", "/store/fallback", "/store/lease", "/store/denialcache", "/lua", "github.com/alicebob/", "github.com/dunglas/", "github.com/golang-jwt/", "net/http/pprof", "html/template", "/headers", "/denial", "/skip", "/observe", "/jwtkey", "/admin", "/override", "/policyfile"},
		"/jwtkey":            {"github.com/redis/", "net/http/pprof", "html/template"},
		"/headers":           {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/denial":            {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/skip":              {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/observe":           {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/outbound":          {"github.com/redis/", "github.com/golang-jwt/", "html/template", "net/http/pprof", "/headers", "/denial"},
		"/store/memstore":    {"github.com/redis/", "/store/redisstore", "/lua", "github.com/go-chi/", "github.com/golang-jwt/"},
		"/store/redisstore":  {"/store/memstore", "/store/fallback", "/store/lease", "github.com/go-chi/", "github.com/golang-jwt/"},
		"/cmd/ratelimit":     {"github.com/golang-jwt/", "/jwtkey", "github.com/alicebob/", "github.com/dunglas/", "net/http/pprof"},
		"/internal/bucket":   {"github.com/"},
		"/internal/clientip": {"github.com/redis/", "github.com/golang-jwt/", "/store/memstore"},
		"/lua":               {"github.com/"},
	} {
		if deps[module+pkg] == nil {
			t.Errorf("%s does not exist", module+pkg)
		}
		for _, dep := range deps[module+pkg] {
			for _, f := range forbidden {
				if strings.Contains(dep, f) {
					t.Errorf("%s depends on %s", module+pkg, dep)
				}
			}
		}
	}

	// These need the standard library, and no more than what is listed. A path with a slash at its end stands for all below it.
	for pkg, allowed := range map[string][]string{
		"":                   {"/internal/", "/explain", "/store", "/store/memstore", "github.com/go-chi/chi/v5"},
		"/store":             {"/internal/"},
		"/store/fallback":    {"/internal/", "/store", "/store/memstore"},
		"/store/lease":       {"/internal/", "/store"},
		"/store/denialcache": {"/internal/", "/store"},
		"/admin":             {"/internal/", "", "/explain", "/observe", "/override", "/store", "/store/memstore", "github.com/cespare/xxhash/v2", "github.com/go-chi/chi/v5", "mvdan.cc/sh/v3/"},
		"/explain":           {"/internal/", "/store"},
		"/override":          {"/internal/", "", "/explain", "/store", "/store/memstore", "github.com/go-chi/chi/v5"},
		"/policyfile":        {"/internal/", "", "/explain", "/store", "/store/memstore", "github.com/go-chi/chi/v5", "go.yaml.in/yaml/v4/"},
		"/cmd/ratelimit/internal/simulate": {"/internal/", "/cmd/ratelimit/internal/", "", "/explain", "/policyfile", "/store", "/store/memstore",
			"github.com/go-chi/chi/v5", "github.com/valyala/fastjson/", "go.yaml.in/yaml/v4/", "github.com/mattn/go-runewidth", "github.com/clipperhouse/uax29/v2/"},
		"/outbound": {"/internal/", "", "/explain", "/store", "/store/memstore", "github.com/go-chi/chi/v5",
			"golang.org/x/net/idna", "golang.org/x/text/secure/bidirule", "golang.org/x/text/transform", "golang.org/x/text/unicode/bidi", "golang.org/x/text/unicode/norm"},
	} {
		for _, dep := range deps[module+pkg] {
			if first, _, _ := strings.Cut(dep, "/"); !strings.Contains(first, ".") {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool {
				return dep == a || dep == module+a || strings.HasSuffix(a, "/") && (strings.HasPrefix(dep, module+a) || strings.HasPrefix(dep+"/", a))
			}) {
				t.Errorf("%s depends on %s", module+pkg, dep)
			}
		}
	}
}

// A program may have an older module of contrib together with a newer root. Only what the root exports is kept then.
func TestContribImportsNoInternalPackage(t *testing.T) {
	checked := 0
	err := filepath.WalkDir("contrib", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			if strings.Contains(spec.Path.Value, "go-tokenbucket/ratelimit/internal/") {
				t.Errorf("%s imports %s", name, spec.Path.Value)
			}
		}
		checked++
		return nil
	})
	if err != nil || checked == 0 {
		t.Errorf("%d files, %v", checked, err)
	}
}

// dependencies returns what each package imports, and what that imports.
func dependencies(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		all := strings.Fields(line)
		deps[all[0]] = all[1:]
	}
	return deps
}
