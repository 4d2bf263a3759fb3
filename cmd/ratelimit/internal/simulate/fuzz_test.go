package simulate_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/simulate"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// Whatever a log says, the simulation ends, and its totals agree with each other.
func FuzzRun(f *testing.F) {
	f.Add(log(), false)
	f.Add(`{"time":0,"addr":"::1","method":"OPTIONS","url":"*"}`+"\n"+`{"time":253402300799,"addr":"x","method":"CONNECT","url":"a:1"}`, true)
	f.Add(clf(1, "unix:", "PRI * HTTP/2.0", 101)+clf(0, "1.2.3.4", "POST //login/../login", 204)+clf(0, "1.2.3.4", "GET http://h/items/1?", 999), false)
	f.Add("\x1f\x8b", false) // a truncated file
	const mounted = policies + `
  - name: item
    on: ["GET /items/{id}", "/static/*"]
    key: {join: [route, {first_of: [{header: Referer}, remote_ip]}]}
    limit: 7/3s burst 2
    lock_for: 1m
    optional: true
  - name: patient
    on: ["GET /items/{id}"]
    key: {static: all}
    limit: 3/1s burst 1
    max_wait: 2s
routes: ["GET /pages/"]
`
	chi, err := parse(mounted + "router: chi\n")
	if err != nil {
		f.Fatal(err)
	}
	mux, err := parse(strings.ReplaceAll(mounted, "/static/*", "/static/"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, withChi bool) {
		cfg := simulate.Config{Policies: map[bool]*policyfile.File{false: mux, true: chi}[withChi], Clients: 10, Decisions: io.Discard, Logs: []simulate.Log{{Name: "access.log", Reader: strings.NewReader(text)}}}
		r, err := simulate.Run(context.Background(), cfg)
		if err != nil && !errors.Is(err, simulate.ErrNothing) {
			t.Fatal(err)
		}
		bad := int64(0)
		for _, b := range r.Bad {
			bad += b.Lines
		}
		if r.Requests+bad != r.Lines {
			t.Errorf("%d lines, %d good and %d bad", r.Lines, r.Requests, bad)
		}
		for _, p := range r.Policies {
			sum, denied := int64(0), int64(0)
			for _, span := range p.When {
				sum, denied = sum+span.Requests, denied+span.Denied
			}
			if p.RequestsDenied > p.Requests || p.Requests > r.Requests || p.ClientsDenied > p.Clients || sum != p.Requests || denied != p.RequestsDenied {
				t.Errorf("%+v", p)
			}
			for _, at := range p.Curve {
				if at.RequestsDenied > p.AloneRequests || at.ClientsDenied > p.AloneClients {
					t.Errorf("%s: %+v of %d requests", p.Name, at, p.AloneRequests)
				}
			}
		}
		// One form of the report for each input, because they take longer than the run. FuzzReport has all forms of any report.
		forms := []func(io.Writer) error{r.JSON, r.HTML, func(w io.Writer) error { return r.Text(w, true, 100) }}
		if err := forms[len(text)%len(forms)](io.Discard); err != nil {
			t.Error(err)
		}
	})
}
