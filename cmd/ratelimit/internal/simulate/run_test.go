package simulate_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
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
	r := simulated(t, simulate.Config{}, policies, log())
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

func simulated(t *testing.T, cfg simulate.Config, policies, text string) *report.Report {
	t.Helper()
	cfg.Policies = file(t, policies)
	cfg.Logs = []simulate.Log{{Name: "access.log", Reader: strings.NewReader(text)}}
	r, err := simulate.Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A blocked reader gives its text and then nothing, until it is closed.
type blocked struct {
	io.Reader
	reads  int
	second func() // at the second read
	end    chan struct{}
}

func (b *blocked) Read(p []byte) (int, error) {
	if b.reads++; b.reads == 2 {
		b.second()
	}
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		<-b.end
	}
	return n, err
}

func TestInterruptedSimulationReportsSoFar(t *testing.T) {
	line := clf(1, "192.0.2.1", "GET /", 200)
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	pipe := &blocked{Reader: strings.NewReader(strings.Repeat(line, 400_000)), second: interrupt, end: make(chan struct{})}
	defer close(pipe.end)
	r, err := simulate.Run(ctx, simulate.Config{Policies: file(t, policies), Logs: []simulate.Log{{Name: "-", Reader: pipe}}})
	most := int64(accesslog.MaxLine+2) / int64(len(line)) // in the first read
	if !errors.Is(err, context.Canceled) || r == nil || !r.Incomplete || r.Lines != most || r.Policies[0].RequestsDenied == 0 {
		t.Errorf("%v, want %d lines: %+v", err, most, r)
	}
}

// failing fails at its second write.
type failing struct{ writes int }

func (f *failing) Write(p []byte) (int, error) {
	if f.writes++; f.writes > 1 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestFailureToWriteDecisionsIsReported(t *testing.T) {
	_, err := simulate.Run(context.Background(), simulate.Config{
		Policies: file(t, policies), Decisions: new(failing),
		Logs: []simulate.Log{{Name: "a", Reader: strings.NewReader(strings.Repeat(log(), 100))}},
	})
	if err == nil || !strings.Contains(err.Error(), "decisions: disk full") {
		t.Error(err)
	}
}

func TestHiddenKeys(t *testing.T) {
	var out bytes.Buffer
	r := simulated(t, simulate.Config{HideKeys: true, Decisions: &out}, policies, strings.ReplaceAll(log(), "192.0.2.1", "192.0.2.45")+"192.0.2.45 is no request\n")
	whole, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"192.0.2.45", "198.51.100.9", "203.0.113.5"} {
		if bytes.Contains(whole, []byte(secret)) || bytes.Contains(out.Bytes(), []byte(secret)) {
			t.Errorf("%s is shown", secret)
		}
	}
	worst := find(t, r, "api").Worst[0].Key
	if !strings.HasPrefix(worst, "hmac:") || !strings.Contains(out.String(), worst) {
		t.Errorf("%q is in no decision", worst)
	}
}

// Beyond the bound, clients are decided about, and counted in the totals.
func TestClientsBeyondTheBound(t *testing.T) {
	var text strings.Builder
	for i := range 300 {
		for range 4 {
			text.WriteString(clf(i%60, fmt.Sprintf("10.0.%d.%d", i/100, i%100), "GET /", 200))
		}
	}
	p := find(t, simulated(t, simulate.Config{Clients: 100}, policies, text.String()), "api")
	if p.Requests != 1200 || p.RequestsDenied != 300 || p.Clients != 100 || p.ClientsDenied != 100 || p.ClientsBeyond != 800 {
		t.Errorf("%+v", p)
	}
	if p.AloneRequests != 400 || p.AloneClients != 100 || p.Curve[0].ClientsDenied != 100 {
		t.Errorf("the curve is of %d requests of %d clients: %+v", p.AloneRequests, p.AloneClients, p.Curve[0])
	}
}

func TestWorstClientsAndWhen(t *testing.T) {
	var text strings.Builder
	for i := range 12 { // client i is denied i times, at second 60i
		for range 3 + i {
			text.WriteString(clf(60*i, fmt.Sprintf("10.0.0.%d", i), "GET /", 200))
		}
	}
	p := find(t, simulated(t, simulate.Config{}, policies, text.String()), "api")
	if len(p.Worst) != 10 {
		t.Fatalf("%d worst clients", len(p.Worst))
	}
	noon := time.Date(2026, 5, 23, 12, 0, 0, 0, time.UTC)
	for i, c := range p.Worst {
		n := int64(11 - i)
		at := noon.Add(time.Duration(n) * time.Minute)
		if want := (report.Client{Key: fmt.Sprintf("ip:10.0.0.%d", n), Requests: 3 + n, Denied: n, First: at, Last: at, Longest: 1, Total: 1}); c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if !p.FirstDenial.Equal(noon.Add(time.Minute)) || !p.LastDenial.Equal(noon.Add(11*time.Minute)) {
		t.Errorf("denials from %v to %v", p.FirstDenial, p.LastDenial)
	}
	var requests, denied int64
	for i, span := range p.When {
		requests, denied = requests+span.Requests, denied+span.Denied
		if i > 0 && span.From.Sub(p.When[i-1].From) != p.When[1].From.Sub(p.When[0].From) {
			t.Errorf("the span at %v has another length", span.From)
		}
	}
	if requests != p.Requests || denied != p.RequestsDenied || len(p.When) < 11 || len(p.When) > 72 {
		t.Errorf("%d requests and %d denials in %d spans", requests, denied, len(p.When))
	}
}

// A limit that is found without a request is no advice.
func TestNoAdviceWithoutRequests(t *testing.T) {
	r := simulated(t, simulate.Config{}, policies, strings.ReplaceAll(log(), "POST /login", "GET /"))
	if p := find(t, r, "login"); p.Requests != 0 || p.Curve != nil || p.Spare != nil {
		t.Errorf("%d requests, curve %v, spare %v", p.Requests, p.Curve, p.Spare)
	}
	if p := find(t, r, "api"); p.Curve == nil || p.Spare == nil {
		t.Error("a policy with requests has no advice")
	}
}

func TestWaiting(t *testing.T) {
	r := simulated(t, simulate.Config{}, `
version: 1
policies:
  - name: slow
    key: remote_ip
    limit: 1/1s
    max_wait: 3s
`, strings.Repeat(clf(0, "192.0.2.1", "GET /", 200), 6))
	if p := r.Policies[0]; p.RequestsDenied != 2 || p.Waited != 3 || p.WaitMean != 2 || p.WaitLongest != 3 || p.Worst[0].Longest != 1 {
		t.Errorf("%+v", p)
	}
}

// Times may be as odd as the year 9999 and go back by millennia.
func TestOddTimes(t *testing.T) {
	line := func(at string) string {
		return fmt.Sprintf("192.0.2.1 - - [%s] \"POST /login HTTP/1.1\" 401 5 \"-\" \"-\"\n", at)
	}
	text := line("31/Dec/9999:23:59:59 +0000") + line("01/Jan/1970:00:00:00 +0000") + line("01/Jan/0001:00:00:00 +0000") + line("01/Jan/1970:00:00:01 +0000") +
		line("31/Dec/9999:23:59:59 +0000") + line("99999999999999999") + line("9223372036854775807")
	const login = "version: 1\npolicies:\n  - name: login\n    key: remote_ip\n    limit: 1/15m burst 2\n    settle: failed_logins\n"
	for _, more := range []string{"", "    lock_for: 15m\n", "    max_wait: 100h\n", "    shadow: true\n"} {
		r := simulated(t, simulate.Config{}, login+more, text)
		if p := find(t, r, "login"); p.Requests != 6 || p.Clients != 1 || len(p.When) > 72 {
			t.Errorf("%s: %+v", more, p)
		}
		if len(r.Bad) != 1 || r.Backwards == 0 || r.To.Year() != 9999 {
			t.Errorf("%+v, from %v to %v", r.Bad, r.From, r.To)
		}
		for _, sentence := range r.Policies[0].Unknown {
			if strings.Contains(sentence, "to fill") {
				t.Errorf("of 292 years and more: %s", sentence)
			}
		}
		var text bytes.Buffer
		if err := errors.Join(r.Text(&text, true, 100), r.JSON(&text), r.HTML(&text)); err != nil {
			t.Error(err)
		}
	}
}

// What a simulation cannot know is said only where it applies.
func TestUnknown(t *testing.T) {
	const keyed = "version: 1\npolicies:\n  - name: p\n    key: %s\n    limit: %s\n"
	for name, c := range map[string]struct {
		policies, text string
		cfg            simulate.Config
		want           string // in a sentence
	}{
		"no key":              {fmt.Sprintf(keyed, "{header: X-Api-Key}", "60/1m"), log(), simulate.Config{}, "19 requests have no key and would be answered 403"},
		"never a key":         {fmt.Sprintf(keyed, "{header: X-Api-Key}", "60/1m") + "    optional: true\n", log(), simulate.Config{}, "No request has its key"},
		"a slow bucket":       {fmt.Sprintf(keyed, "remote_ip", "1/1h"), log(), simulate.Config{}, "It takes 1h0m0s to fill, and the log has 1m30s"},
		"a fast bucket":       {fmt.Sprintf(keyed, "remote_ip", "10/1s"), log(), simulate.Config{}, "resolution of 1s"},
		"denials":             {policies, log(), simulate.Config{}, "behave differently"},
		"failed logins":       {policies, log(), simulate.Config{}, "not from 200 to 399"},
		"several":             {policies, log(), simulate.Config{}, "one policy alone"},
		"turned away before":  {policies, log(), simulate.Config{}, "in none of those behind it"},
		"limited before":      {policies, clf(0, "192.0.2.1", "GET /", 429), simulate.Config{}, "1 request has the status 429"},
		"the end of nginx":    {policies, log(), simulate.Config{}, "nginx logs the end"},
		"a lock":              {policies + "    lock_for: 1h\n", log(), simulate.Config{}, "no bucket is locked"},
		"waiting":             {fmt.Sprintf(keyed, "remote_ip", "1/1s") + "    max_wait: 1s\n", log(), simulate.Config{}, "At most 1,024 requests wait"},
		"closed in outages":   {fmt.Sprintf(keyed, "remote_ip", "1/1s") + "    fail_closed: true\n", log(), simulate.Config{}, "answers 503"},
		"names for addresses": {fmt.Sprintf(keyed, "{client_ip: {proxy_count: 1}}", "1/1s"), strings.ReplaceAll(log(), `"-" "curl/8"`, `"-" "curl/8" "unknown"`), simulate.Config{Extra: []string{"X-Forwarded-For"}}, "malformed key"},
	} {
		t.Run(name, func(t *testing.T) {
			holds := func(policies, text string, cfg simulate.Config) bool {
				r := simulated(t, cfg, policies, text)
				all := r.Unknown
				for _, p := range r.Policies {
					all = append(all, p.Unknown...)
				}
				return strings.Contains(strings.Join(all, "\n"), c.want)
			}
			if !holds(c.policies, c.text, c.cfg) {
				t.Errorf("no sentence with %q", c.want)
			}
			quiet := fmt.Sprintf(keyed, "remote_ip", "60/1m")
			lines := `{"time":"2026-05-23T12:00:00.001Z","addr":"192.0.2.1","method":"GET","url":"/","status":200}` + "\n" +
				`{"time":"2026-05-23T14:00:00Z","addr":"192.0.2.1","method":"GET","url":"/","status":200}` + "\n"
			if holds(quiet, lines, simulate.Config{}) {
				t.Errorf("%q is said of a log to which it does not apply", c.want)
			}
		})
	}
}

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
	r := simulated(t, simulate.Config{}, behind, log.String())
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

// A policy that needs a function of the program, or takes slots, is named at the top of each form of the report. It changes
// nothing that others decide.
func TestLeftOutIsSaid(t *testing.T) {
	const slots = "  - name: exports\n    key: {static: all}\n    limit: 1 at once\n    max_wait: 1s\n"
	f, err := policyfile.Parse("limits.yaml", []byte(policies+"  - name: tiers\n    key: members\n    limit: 60/1m\n"+slots), policyfile.Registry{Unknown: []string{"members"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := simulate.Run(context.Background(), simulate.Config{Policies: f, Logs: []simulate.Log{{Name: "access.log", Reader: strings.NewReader(log())}}})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(r.Unknown, "\n"); !strings.Contains(all, "tiers is left out: it uses members, which only the program has. Run it in the program as a Shadow") {
		t.Errorf("no remedy in\n%s", all)
	} else if !strings.Contains(all, "exports is left out: its limit is for requests that run at once, and a log does not say how long a request ran.") {
		t.Errorf("slots are not explained in\n%s", all)
	}
	if without := simulated(t, simulate.Config{}, policies, log()); !reflect.DeepEqual(r.Policies, without.Policies) {
		t.Errorf("with slots %+v\nwithout %+v", r.Policies, without.Policies)
	}
	for form, write := range map[string]func(*bytes.Buffer) error{
		"Left out: tiers, exports: see below.": func(w *bytes.Buffer) error { return r.Text(w, false, 100) },
		`Left out: tiers, exports: <a`:         func(w *bytes.Buffer) error { return r.HTML(w) },
		`"left_out": [`:                        func(w *bytes.Buffer) error { return r.JSON(w) },
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
