package simulate_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// A policy that another one denies requests before has a curve of all requests, and shares of all.
func TestTotalsOfAPolicyAlone(t *testing.T) {
	const behind = `
version: 1
policies:
  - name: all
    key: {static: all}
    limit: 1/1h burst 4
  - name: login
    on: [POST /login]
    key: remote_ip
    limit: 1/1h burst 2
`
	var log strings.Builder
	for i := range 10 {
		log.WriteString(clf(i, "192.0.2."+string(rune('1'+i%5)), "POST /login", 200))
	}
	r, err := simulate.Run(context.Background(), simulate.Config{Policies: file(t, behind), Logs: []simulate.Log{{Name: "access.log", Reader: strings.NewReader(log.String())}}})
	if err != nil {
		t.Fatal(err)
	}
	p := find(t, r, "login")
	if p.Requests != 4 || p.Clients != 4 || p.AloneRequests != 10 || p.AloneClients != 5 {
		t.Errorf("%d requests of %d clients, alone %d of %d; want 4 of 4, alone 10 of 5", p.Requests, p.Clients, p.AloneRequests, p.AloneClients)
	}
	for _, at := range p.Curve {
		if at.RequestsDenied > p.AloneRequests || at.ClientsDenied > p.AloneClients || at.Burst == 1 && at.ClientsDenied != 5 {
			t.Errorf("%+v", at)
		}
	}
}

// A policy that needs a function of the program is named at the top of each form of the report.
func TestLeftOutIsSaid(t *testing.T) {
	f, err := policyfile.Parse("limits.yaml", []byte(policies+"  - name: tiers\n    key: members\n    limit: 60/1m\n"), policyfile.Registry{Unknown: []string{"members"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(context.Background(), simulate.Config{Policies: f, Logs: []simulate.Log{{Name: "access.log", Reader: strings.NewReader(log())}}})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(r.Unknown, "\n"); !strings.Contains(all, "tiers is left out: it uses members, which only the program has. Run it in the program as a Shadow") {
		t.Errorf("no remedy in\n%s", all)
	}
	for form, write := range map[string]func(*bytes.Buffer) error{
		"Left out: tiers: see below.": func(w *bytes.Buffer) error { return r.Text(w, false) },
		`Left out: tiers: <a`:         func(w *bytes.Buffer) error { return r.HTML(w) },
		`"left_out": [`:               func(w *bytes.Buffer) error { return r.JSON(w) },
	} {
		var w bytes.Buffer
		if err := write(&w); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(w.String(), form) {
			t.Errorf("no %q in\n%s", form, w.String())
		}
	}
}
