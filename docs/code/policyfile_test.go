package code_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/policyfile"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// someMembers has the one method of jwtkey.Keys that docs/policy-files.md uses.
type someMembers struct{}

func (someMembers) Claim(name string) ratelimit.KeyFunc { return ratelimit.Header("X-" + name) }

// watchPolicies is a program of docs/policy-files.md.
func watchPolicies(ctx context.Context, path string, store store.Store, members someMembers, tier func(*http.Request) ratelimit.Limit, login http.Handler) error {
	registry := policyfile.Registry{
		Keys:   map[string]ratelimit.KeyFunc{"members": members.Claim("sub")},
		Limits: map[string]func(*http.Request) ratelimit.Limit{"tier": tier},
	}
	file, err := policyfile.Load(path, registry)
	if err != nil {
		return err // all faults, each with its line
	}
	limiter, err := ratelimit.New(ratelimit.Config{Store: store, Policies: file.Everywhere()})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /login", limiter.Limit(file.Named("login")...)(login))
	if err := policyfile.Watch(ctx, limiter, path, registry, policyfile.WatchConfig{}); err != nil {
		return err
	}
	return nil
}

func registry() policyfile.Registry {
	return policyfile.Registry{
		Keys:   map[string]ratelimit.KeyFunc{"members": someMembers{}.Claim("sub")},
		Limits: map[string]func(*http.Request) ratelimit.Limit{"tier": func(*http.Request) ratelimit.Limit { return ratelimit.Limit{} }},
	}
}

// policyFileOfTheGuide returns the first block of YAML in docs/policy-files.md.
func policyFileOfTheGuide(t *testing.T) string {
	blocks, _ := readDocument(t, "docs/policy-files.md").split()
	for _, b := range blocks {
		if b.language == "yaml" {
			return strings.Join(b.lines, "\n") + "\n"
		}
	}
	t.Fatal("no YAML")
	return ""
}

func TestPolicyFile(t *testing.T) {
	file, err := policyfile.Load("testdata/limits.yaml", registry())
	if err != nil {
		t.Fatal(err)
	}
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: file.Everywhere()}))
	defer limiter.Close()
	handler := file.Handler(limiter, http.NotFoundHandler())
	for range 5 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil))
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("status %d after five failed logins", w.Code)
	}
}

// The file and the faults of docs/policy-files.md are real.
func TestPolicyFilesOfTheGuide(t *testing.T) {
	text := policyFileOfTheGuide(t)
	if stored, err := os.ReadFile("testdata/limits.yaml"); err != nil || string(stored) != text {
		t.Errorf("testdata/limits.yaml is not the file of the guide, error %v", err)
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := watchPolicies(ctx, path, s, someMembers{}, nil, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), `Registry.Limits["tier"]: is nil`) {
		t.Errorf("error %v", err)
	}
	if err := watchPolicies(ctx, path, s, someMembers{}, registry().Limits["tier"], http.NotFoundHandler()); err != nil {
		t.Errorf("error %v", err)
	}

	wrong := strings.NewReplacer("[members", "[membrs", "60/1m burst 10", "0/1m", "limit_func: tier", "lockfor: 1m").Replace(text)
	_, err := policyfile.Parse("limits.yaml", []byte(wrong), registry())
	guide := strings.Join(readDocument(t, "docs/policy-files.md").lines, "\n")
	if err == nil || !strings.Contains(guide, "```text\n"+err.Error()+"\n```") {
		t.Errorf("the guide does not have these faults:\n%v", err)
	}
}
