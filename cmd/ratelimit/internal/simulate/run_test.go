package simulate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

const policies = `
version: 1
policies:
  - name: api
    key: remote_ip
    limit: 60/1m burst 3
  - name: login
    on: [POST /login]
    key: remote_ip
    limit: 1/15m burst 2
    settle: failed_logins
`

func parse(text string) (*policyfile.File, error) {
	return policyfile.Parse("limits.yaml", []byte(text), policyfile.Registry{})
}

func file(t *testing.T, text string) *policyfile.File {
	t.Helper()
	f, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// clf returns a line of the combined format, so many seconds after noon.
func clf(second int, addr, request string, status int) string {
	at := time.Date(2026, 5, 23, 12, 0, second, 0, time.UTC)
	return fmt.Sprintf("%s - - [%s] \"%s HTTP/1.1\" %d 100 \"-\" \"curl/8\"\n", addr, at.Format("02/Jan/2006:15:04:05 -0700"), request, status)
}

// five logs in five times with a wrong password, and twice with the right one, and asks for an item all the time.
func log() string {
	var text strings.Builder
	for i := range 6 {
		text.WriteString(clf(i, "192.0.2.1", "GET /items", 200))
		text.WriteString(clf(i, "192.0.2.1", "GET /items?page=2", 200))
		if i < 5 {
			text.WriteString(clf(i, "198.51.100.9", "POST /login", 401))
		}
	}
	text.WriteString("so what\n")
	text.WriteString(clf(90, "203.0.113.5", "POST /login", 302))
	text.WriteString(clf(90, "203.0.113.5", "POST /login", 302))
	return text.String()
}

func find(t *testing.T, r *report.Report, name string) *report.Policy {
	t.Helper()
	for i := range r.Policies {
		if r.Policies[i].Name == name {
			return &r.Policies[i]
		}
	}
	t.Fatalf("no policy %s in the report", name)
	return nil
}

func TestTotals(t *testing.T) {
	r, err := simulate.Run(context.Background(), simulate.Config{Policies: file(t, policies), Logs: []simulate.Log{{Name: "access.log", Reader: strings.NewReader(log())}}})
	if err != nil {
		t.Fatal(err)
	}
	// 192.0.2.1 has 3 tokens and gets one a second, of the two that it needs.
	if p := find(t, r, "api"); p.Requests != 19 || p.RequestsDenied != 4 || p.Clients != 3 || p.ClientsDenied != 1 || p.Limit != "60/1m burst 3" || p.On != "" {
		t.Errorf("api: %+v", p)
	}
	if p := find(t, r, "login"); p.Requests != 7 || p.RequestsDenied != 3 || p.Clients != 2 || p.ClientsDenied != 1 || p.On != "POST /login" {
		t.Errorf("login: %+v", p)
	}
	if r.Lines != 20 || r.Requests != 19 || len(r.Bad) != 1 || r.Bad[0].Examples[0] != (report.BadLine{File: "access.log", Line: 18, Text: "so what"}) {
		t.Errorf("%d lines, %d good, bad: %+v", r.Lines, r.Requests, r.Bad)
	}
}

func TestSeveralFilesAlsoCompressed(t *testing.T) {
	half := strings.Index(log(), "so what")
	var packed bytes.Buffer
	for _, member := range []string{log()[:100], log()[100:half]} {
		w := gzip.NewWriter(&packed)
		w.Write([]byte(member))
		w.Close()
	}
	whole, err := simulate.Run(context.Background(), simulate.Config{Policies: file(t, policies), Logs: []simulate.Log{{Name: "all", Reader: strings.NewReader(log())}}})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := simulate.Run(context.Background(), simulate.Config{Policies: file(t, policies), Logs: []simulate.Log{
		{Name: "1.gz", Reader: &packed}, {Name: "2", Reader: strings.NewReader(log()[half:])},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole.Policies {
		if got, want := parts.Policies[i].RequestsDenied, whole.Policies[i].RequestsDenied; got != want {
			t.Errorf("%s: %d denied, want %d", whole.Policies[i].Name, got, want)
		}
	}
	if parts.Bytes != int64(len(log())) || parts.Lines != whole.Lines {
		t.Errorf("%d bytes of %d lines, want %d of %d", parts.Bytes, parts.Lines, len(log()), whole.Lines)
	}
	if got := parts.Bad[0].Examples[0]; got.File != "2" || got.Line != 1 {
		t.Errorf("the bad line is %+v", got)
	}
}

func TestNothingToSimulateIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "the logs are empty",
		"\n\n":                      "the logs are empty",
		"{\n":                       "access.log:1: the line is not a JSON object",
		"what\n":                    "access.log:1: not a line of the common or combined log format",
		`{"msg": "hello"}` + "\n\n": "no field has",
	} {
		r, err := simulate.Run(context.Background(), simulate.Config{Policies: file(t, policies), Logs: []simulate.Log{{Name: "access.log", Reader: strings.NewReader(text)}}})
		if !errors.Is(err, simulate.ErrNothing) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if r == nil || r.Requests != 0 {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// A key of up to 256 bytes is named, such as a join with a User-Agent.
func TestJoinedKeysAreNamed(t *testing.T) {
	r, err := simulate.Run(context.Background(), simulate.Config{
		Policies: file(t, "version: 1\npolicies:\n  - name: api\n    key: {join: [remote_ip, {header: User-Agent}]}\n    limit: 1/1h\n"),
		Logs:     []simulate.Log{{Name: "access.log", Reader: strings.NewReader(strings.Repeat(clf(0, "192.0.2.1", "GET /", 200), 2))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if worst := find(t, r, "api").Worst; len(worst) != 1 || len(worst[0].Key) <= 64 || !strings.Contains(worst[0].Key, "192.0.2.1") {
		t.Errorf("%+v", worst)
	}
}
