package command_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
)

// A log on standard input, one in a file and one that is gzipped have the same report, and so have all its forms.
func TestSimulate(t *testing.T) {
	policies := file(t, "limits.yaml", limitsFile)
	log := strings.Repeat(logLine, 5) + "garbage \x1b[31m\n" + strings.ReplaceAll(logLine, "192.0.2.1", "192.0.2.2")
	plain := file(t, "access.log", log)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, log)
	_ = w.Close()
	gzipped := file(t, "access.log.gz", packed.String())
	folder := t.TempDir()
	page, decisions := filepath.Join(folder, "report.html"), filepath.Join(folder, "decisions.json")

	text := run(t, "simulate", plain, "-policies", policies, "-html", page, "-decisions", decisions)
	text.want(t, 0, "ratelimit simulate: memory: at most ", " MB with -clients 1,000,000\n", `garbage \x1b[31m`, "ip:192.0.2.1")
	if strings.Contains(text.out+text.err, "\x1b") {
		t.Errorf("not escaped, or coloured without a terminal: %q", text.out)
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "<!DOCTYPE html>") && !strings.Contains(string(html), "<!doctype html>") {
		t.Errorf("the page: %v\n%.200s", err, html)
	}
	lines, err := os.ReadFile(decisions)
	if err != nil || bytes.Count(lines, []byte("\n")) != 6 {
		t.Errorf("decisions: %v\n%s", err, lines)
	}
	for line := range bytes.Lines(lines) {
		if !json.Valid(line) {
			t.Errorf("decisions: no JSON: %s", line)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	counts := func(r ran) string {
		var report struct {
			Requests int64 `json:"requests"`
			Policies []struct {
				Name   string `json:"name"`
				Denied int64  `json:"requests_denied"`
			} `json:"policies"`
		}
		if err := json.Unmarshal([]byte(r.out), &report); err != nil {
			t.Fatalf("%v\n%s%s", err, r.out, r.err)
		}
		all, _ := json.Marshal(report)
		return string(all)
	}
	want := `{"requests":6,"policies":[{"name":"api","requests_denied":3},{"name":"login","requests_denied":0}]}`
	for _, args := range [][]string{{plain}, {gzipped}, {"-"}, {"-", "-format", "combined", "-clients", "10", "-hide-keys"}} {
		r := setup{stdin: log}.run(t, append([]string{"simulate", "-json", "-policies", policies}, args...)...)
		if got := counts(r); r.status != 0 || got != want {
			t.Errorf("%q: status %d, got %s, want %s", args, r.status, got, want)
		}
	}
	run(t, "simulate", "-json", "-hide-keys", plain, "-policies", policies).want(t, 0, `"hmac:`)
	painted := setup{terminal: true, env: map[string]string{"TERM": "xterm"}}.run(t, "simulate", plain, "-policies", policies)
	if painted.want(t, 0); !strings.Contains(painted.out, "\x1b[") || strings.Contains(painted.out, "garbage \x1b") {
		t.Errorf("on a terminal: %q", painted.out)
	}
}

// What to do stands in the first lines and in the JSON, without the clients of -exclude.
func TestAdviceOfSimulate(t *testing.T) {
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 60/1m burst 10\n")
	var log strings.Builder
	for i := range 40 {
		log.WriteString(strings.Repeat(strings.ReplaceAll(logLine, "192.0.2.1", fmt.Sprintf("10.0.0.%d", i)), 12))
	}
	path := file(t, "access.log", log.String()+strings.Repeat(logLine, 400)+strings.Repeat(strings.ReplaceAll(logLine, "192.0.2.1", "192.0.2.2"), 100))
	run(t, "simulate", path, "-policies", policies).want(t, 0, "of more than 120,", "UTC.\napi: Deny this client: ip:192.0.2.1, with 41 % of the requests. Use 60/1m burst 100: it spares all")
	var r struct {
		Policies []struct {
			Verdict struct {
				Limit              string
				Others             int64
				Outliers, Excluded []struct{ Key string }
			}
		}
	}
	out := run(t, "simulate", path, "-policies", policies, "-exclude", "ip:192.0.2.2", "-exclude", "ip:10.0.0.7", "-json").out
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(r.Policies[0].Verdict), "{60/1m burst 12 39 [{ip:192.0.2.1}] [{ip:10.0.0.7} {ip:192.0.2.2}]}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, columns := range []int{60, 150} {
		widest := 0
		for line := range strings.Lines(setup{terminal: true, env: map[string]string{"COLUMNS": fmt.Sprint(columns)}}.run(t, "simulate", path, "-policies", policies).out) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
		}
		if widest != columns {
			t.Errorf("on a terminal of %d columns: %d", columns, widest) // by the line with the name of the policy
		}
	}
	run(t, "simulate", path, "-policies", policies, "-exclude", "192.0.2.2").want(t, 2, "-exclude: 192.0.2.2: no client has this key")
}

// A policy that denies exactly the share of -fail-above passes, for shares that are no binary fractions, too.
func TestFailAboveIsExact(t *testing.T) {
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 1/1h\n")
	var log strings.Builder
	for i := range 1000 {
		n := max(0, i-7) // the first client has 8 requests, of which 7 are denied
		log.WriteString(strings.ReplaceAll(logLine, "192.0.2.1", fmt.Sprintf("10.0.%d.%d", n/250, n%250)))
	}
	path := file(t, "access.log", log.String())
	run(t, "simulate", path, "-policies", policies, "-fail-above", "0.7%").want(t, 0, "Denies 7 of 1,000 requests")
	run(t, "simulate", path, "-policies", policies, "-fail-above", "0.69%").want(t, 1, "denies 0.7% of its requests")
	run(t, "simulate", path, "-policies", policies, "-spare", "99.9%", "-json").want(t, 0, `"share": 0.999,`)
}

// A log that cannot be read to its end is reported up to there, and is no log for a check of CI.
func TestSimulateOfATruncatedLog(t *testing.T) {
	policies := file(t, "limits.yaml", limitsFile)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for i := range 20_000 {
		fmt.Fprintf(w, "%d%s", i%10, logLine[1:])
	}
	w.Close()
	log := file(t, "access.log.gz", packed.String()[:packed.Len()/2])
	const missing = "access.log.gz: the compressed data ends early: the report lacks what comes after line "
	run(t, "simulate", log, "-policies", policies).want(t, 0, "requests of", missing)
	run(t, "simulate", log, "-policies", policies, "-fail-above", "100%").want(t, 1, "requests of", missing, "a log cannot be read to its end, so that -fail-above cannot be checked")
	r := run(t, "simulate", file(t, "short.gz", packed.String()[:20]), "-policies", policies)
	if r.want(t, 3, "1 line of 1 could not be read", "the compressed data ends early"); strings.Contains(r.out, "2 lines of 1") {
		t.Error(r.out)
	}
}

func TestSimulateJSONLines(t *testing.T) {
	policies := file(t, "limits.yaml", "version: 1\npolicies:\n  - name: api\n    key: {header: X-Key}\n    limit: 1/1h\n")
	line := `{"ts":"2026-03-01T12:00:00Z","client":{"ip":"192.0.2.1"},"m":"GET","u":"/","s":200,"k":"5"}` + "\n"
	r := setup{stdin: line + line}.run(t, "simulate", "-policies", policies, "-map", "time=ts,addr=client.ip,method=m,url=u,status=s,header.X-Key=k", "-")
	r.want(t, 0, "2 requests of", "Denies 1 of 2 requests")
}

// A policy that needs the program is left out, and this is said. Without -names it is a fault.
func TestNames(t *testing.T) {
	policies := file(t, "limits.yaml", limitsFile+"  - name: member\n    key: members\n    limit: 1/1h\n")
	log := file(t, "access.log", logLine)
	for _, args := range [][]string{{"simulate", log}, {"explain", "/"}} {
		args = append(args, "-policies", policies)
		run(t, args...).want(t, 3, "limits.yaml:11:", "members", "list it with -names")
		run(t, append(args, "-names", "members,tier")...).want(t, 0, "LEFT OUT: policy member, because it uses members")
	}
	run(t, "policies", "-check", policies).want(t, 1, "limits.yaml:11:")
	run(t, "policies", "-check", "-names", "members", policies).want(t, 0)
	run(t, "policies", "-names", "members", policies).want(t, 0, `"unknown": [`)
	only := file(t, "only.yaml", "version: 1\npolicies:\n  - name: member\n    key: members\n    limit: 1/1h\n")
	run(t, "simulate", log, "-policies", only, "-names", "members").want(t, 3, "no policy is left")
	slots := "  - name: exports\n    key: remote_ip\n    limit: 3 at once\n"
	run(t, "simulate", log, "-policies", file(t, "both.yaml", limitsFile+slots)).want(t, 0, "Left out: exports")
	run(t, "simulate", log, "-policies", file(t, "slots.yaml", "version: 1\npolicies:\n"+slots)).want(t, 3, "no policy is left: a log does not say how many requests ran at once")
}

// A file that exists is replaced when the new one is whole, and stays as it is if there is no report.
func TestFilesOfSimulate(t *testing.T) {
	policies := file(t, "limits.yaml", limitsFile)
	page := file(t, "report.html", "old")
	run(t, "simulate", file(t, "garbage.log", "x\n"), "-policies", policies, "-decisions", page).want(t, 3)
	run(t, "simulate", file(t, "access.log", logLine), "-policies", policies, "-html", page).want(t, 0)
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("<html")) {
		t.Errorf("%v\n%.100s", err, text)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(page), ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if err := os.Chmod(page, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "simulate", file(t, "access.log", logLine), "-policies", policies, "-html", page).want(t, 0)
	if info, err := os.Stat(page); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the new file: %v, %v", info.Mode(), err)
	}
	run(t, "simulate", file(t, "access.log", logLine), "-policies", policies, "-html", filepath.Join("no such", "report.html")).want(t, 3, filepath.Join("no such", "report.html")+": ")
	run(t, "simulate", file(t, "access.log", logLine), "-policies", policies, "-decisions", os.DevNull, "-html", os.DevNull).want(t, 0)
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s was replaced: %v", os.DevNull, err)
	}
}

func TestProgress(t *testing.T) {
	for want, got := range map[string]string{
		" 25 %  250 MB of 1,000 MB, 6 s left":   command.ProgressText(250e6, 1000e6, 2*time.Second),
		"100 %  1,000 MB of 1,000 MB, 0 s left": command.ProgressText(1000e6, 1000e6, 2*time.Second),
		"100 %  1,001 MB of 1,000 MB, 0 s left": command.ProgressText(1001e6, 1000e6, 2*time.Second),
		"250 MB":                                command.ProgressText(250e6, 0, 2*time.Second),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	// Only a terminal shows it, and it is cleared at the end.
	policies := file(t, "limits.yaml", limitsFile)
	slow := func() io.Reader {
		in, feed := io.Pipe()
		go func() {
			_, _ = io.WriteString(feed, logLine)
			time.Sleep(250 * time.Millisecond)
			_, _ = io.WriteString(feed, logLine)
			feed.Close()
		}()
		return in
	}
	env := func(name string) string { return map[string]string{"TERM": "xterm"}[name] }
	var out, shown, none bytes.Buffer
	status := command.Run(t.Context(), []string{"simulate", "-", "-policies", policies}, env, slow(), &out, terminal{&shown})
	if text := fmt.Sprintf("%d bytes", 2*len(logLine)); status != 0 || !strings.Contains(shown.String(), "\r"+text) || !strings.HasSuffix(shown.String(), "\r"+strings.Repeat(" ", len(text))+"\r") {
		t.Errorf("status %d, shown %q", status, shown.String())
	}
	status = command.Run(t.Context(), []string{"simulate", "-", "-policies", policies}, env, slow(), &out, &none)
	if status != 0 || strings.Contains(none.String(), "\r") {
		t.Errorf("status %d, shown without a terminal: %q", status, none.String())
	}
}
