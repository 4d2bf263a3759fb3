package ratelimit_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The arrows between packages run one way. In particular a user of the memory store compiles no Redis
// client, and nobody gets net/http/pprof, which chi's middleware package imports and which shows itself on
// http.DefaultServeMux unasked, or the three megabytes of html/template without a page of his own.
func TestArrows(t *testing.T) {
	const module = "github.com/go-tokenbucket/ratelimit"
	for pkg, forbidden := range map[string][]string{
		"":                   {"github.com/redis/", "/store/redisstore", "/lua", "github.com/alicebob/", "github.com/dunglas/", "github.com/golang-jwt/", "net/http/pprof", "html/template", "/headers", "/denial", "/skip", "/observe", "/jwtkey"},
		"/jwtkey":            {"github.com/redis/", "net/http/pprof", "html/template"},
		"/headers":           {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/denial":            {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/skip":              {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/observe":           {"github.com/redis/", "github.com/golang-jwt/", "html/template"},
		"/store":             {"github.com/redis/", module + "/store/", "/lua", "github.com/go-chi/", "github.com/golang-jwt/"},
		"/store/memstore":    {"github.com/redis/", "/store/redisstore", "/lua", "github.com/go-chi/", "github.com/golang-jwt/"},
		"/store/redisstore":  {"/store/memstore", "github.com/go-chi/", "github.com/golang-jwt/"},
		"/internal/bucket":   {"github.com/"},
		"/internal/clientip": {"github.com/"},
		"/lua":               {"github.com/"},
	} {
		out, err := exec.Command("go", "list", "-deps", module+pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			if dep == module+pkg {
				continue
			}
			for _, f := range forbidden {
				if strings.Contains(dep, f) {
					t.Errorf("%s depends on %s", module+pkg, dep)
				}
			}
		}
	}
}
