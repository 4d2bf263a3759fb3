package conformance

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// headerParser is the parser that JavaScript clients have.
const headerParser = "ratelimit-header-parser@0.1.0"

// A parseable is a response as the parser is given it, and when it was made.
type parseable struct {
	Headers map[string]string `json:"headers"`
	At      int64             `json:"at"`

	dialect  *dialect
	decision ratelimit.Decision
}

// parse has the parser read all responses, in one process.
func parse(t *testing.T, responses []*parseable) []map[string]*int64 {
	t.Helper()
	node, nodeErr := exec.LookPath("node")
	npm, npmErr := exec.LookPath("npm")
	if nodeErr != nil || npmErr != nil {
		t.Skip("no node or no npm on PATH")
	}
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join("testdata", "parse.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	// With a package.json of its own, npm does not look for one further up.
	for name, content := range map[string][]byte{"parse.mjs": script, "package.json": []byte(`{"private": true}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", headerParser)
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}

	in, err := json.Marshal(responses)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), node, "parse.mjs")
	run.Dir = dir
	run.Env = append(os.Environ(), "TZ=UTC") // the parser adds seconds to local time
	run.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, &stderr)
	}
	var found []map[string]*int64
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	if len(found) != len(responses) {
		t.Fatalf("the parser answered %d of %d responses", len(found), len(responses))
	}
	return found
}

// randomPolicy has a limit that some requests will meet, and costs of which some are above the burst.
func randomPolicy(random *rand.Rand) ratelimit.Policy {
	per := time.Duration(1+random.Int64N(int64(48*time.Hour/time.Millisecond))) * time.Millisecond
	p := everybody(ratelimit.Limit{Rate: 1 + random.Int64N(1000), Per: per, Burst: 1 + random.Int64N(8)})
	costs := make(chan int64, 64)
	for range cap(costs) {
		costs <- random.Int64N(p.Limit.Burst + 2)
	}
	p.Cost = func(*http.Request) int64 { return <-costs }
	return p
}

// respond returns responses of the middleware to random requests, and what it decided of each.
func respond(t *testing.T, random *rand.Rand, d *dialect) (responses []*parseable) {
	t.Helper()
	decisions := make(chan ratelimit.Decision, 1)
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{randomPolicy(random)},
		Headers: func(h http.Header, decision *ratelimit.Decision) {
			decisions <- *decision
			d.write(h, decision)
		},
	})
	url := serve(t, l.Handler(okHandler))
	for range 10 {
		a := send(t, url)
		headers := make(map[string]string)
		for name, values := range a.Header {
			headers[strings.ToLower(name)] = strings.Join(values, ", ") // as Node does
		}
		decided := <-decisions
		responses = append(responses, &parseable{headers, decided.At.UnixMilli(), d, decided})
	}
	return responses
}

func TestAParserReadsWhatWasDecided(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var responses []*parseable
	for i := range dialects {
		for range 20 {
			responses = append(responses, respond(t, random, &dialects[i])...)
		}
	}
	statuses := map[bool]int{}
	for i, found := range parse(t, responses) {
		r := responses[i]
		statuses[r.decision.Allowed]++
		if r.dialect.parsed == nil {
			for name, value := range found {
				if value != nil {
					t.Errorf("%s: of %v the parser reads %s %d", r.dialect.name, r.Headers, name, *value)
				}
			}
			continue
		}
		want := r.dialect.parsed(r.decision.Tightest(), r.decision.At)
		for name, value := range map[string]int64{"limit": want.Limit, "remaining": want.Remaining, "reset": want.Reset} {
			if got := found[name]; got == nil {
				t.Errorf("%s: of %v the parser reads no %s", r.dialect.name, r.Headers, name)
			} else if *got != value {
				t.Errorf("%s: of %v the parser reads %s %d, want %d", r.dialect.name, r.Headers, name, *got, value)
			}
		}
	}
	if statuses[true] == 0 || statuses[false] == 0 {
		t.Errorf("%d were allowed and %d denied", statuses[true], statuses[false])
	}
}
