package command_test

import (
	"os"
	"strings"
	"testing"
)

const (
	limitsFile = `version: 1
policies:
  - name: api
    key: remote_ip
    limit: 2/1h
  - name: login
    on: [POST /login]
    key: remote_ip
    limit: 1/1h
`
	logLine = `192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 12 "-" "-"` + "\n"
)

func TestStatus(t *testing.T) {
	good := file(t, "limits.yaml", limitsFile)
	bad := file(t, "bad.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 0/1h\n")
	kept := file(t, "kept.yaml", limitsFile)
	quiet := file(t, "quiet.log", logLine)
	busy := file(t, "busy.log", strings.Repeat(logLine, 4))
	shadow := file(t, "shadow.yaml", "version: 1\npolicies:\n  - name: api\n    key: remote_ip\n    limit: 2/1h\n    shadow: true\n")
	broken := file(t, "broken.log", logLine+"nothing\nof\nthis\n")
	keyless := file(t, "keyless.yaml", "version: 1\npolicies:\n  - name: members\n    key: {header: X-Member}\n    limit: 2/1h\n")
	unknown := file(t, "unknown.yaml", limitsFile+"  - name: tiered\n    key: remote_ip\n    limit_func: tiers\n    limit: 2/1h\n")
	garbage := file(t, "garbage.log", "nothing\nof\nthis\n")
	const nobody = "redis://127.0.0.1:1"

	for _, tt := range []struct {
		status int
		args   string
		wants  string
	}{
		{2, "", "COMMANDS:"},
		{0, "help", "COMMANDS:"},
		{0, "-h", "COMMANDS:"},
		{0, "--help", "COMMANDS:"},
		{0, "help peek", "-policy NAME"},
		{0, "peek -h", "-policy NAME"},
		{0, "peek x --help", "-policy NAME"},
		{2, "help nothing", "nothing: no such command"},
		{2, "nothing", "nothing: no such command"},

		{2, "diagnose", "-redis: must be the URL of Redis"},
		{2, "diagnose extra -redis " + nobody, "extra: unexpected argument"},
		{2, "diagnose -redis localhost:6379", "-redis: must be a URL"},
		{2, "diagnose -redis http://localhost", "redis or rediss or unix"},
		{2, "diagnose -nothing", "-nothing: no such flag\nratelimit help diagnose"},
		{2, "diagnose -timeout", "-timeout: needs a value"},
		{2, "diagnose -timeout 5 -redis " + nobody, "-timeout: must be a duration above 0, such as 90s"},
		{2, "diagnose -timeout 0s -redis " + nobody, "-timeout: must be a duration above 0"},
		{2, "diagnose -cluster=maybe -redis " + nobody, "a flag is malformed"},
		{2, "diagnose -prefix a{b -redis " + nobody, "-prefix: must be printable ASCII"},
		{2, "diagnose -cluster -redis " + nobody + "/3", "without a path"},
		{3, "diagnose -redis " + nobody, "does not answer"},
		{3, "diagnose -secret-file nowhere -redis " + nobody, "-secret-file: open nowhere"},
		{3, "diagnose -secret-file " + file(t, "empty", "\n") + " -redis " + nobody, "is empty"},

		{2, "peek -policy api -redis " + nobody, "KEY is missing"},
		{2, "peek a b -policy api -redis " + nobody, "b: unexpected argument"},
		{2, "peek a -redis " + nobody, "-policy: must be the name"},
		{2, "peek a -policy a/b? -redis " + nobody, "-policy: must be 1 to 63 ASCII letters"},
		{3, "peek a -policy api -redis " + nobody, "connection refused"},
		{3, "reset a -policy api -redis " + nobody, "connection refused"},
		{3, "block a -policy api -redis " + nobody, "connection refused"},
		{2, "block a -policy api -for ever -redis " + nobody, "-for: must be a duration"},
		{2, "peek a -policy api -for 1h -redis " + nobody, "-for: no such flag"},
		{2, "block a -policy api -for 400000h -redis " + nobody, "-for: must be from 1µs to 312749h58m26.842624s (35 years)"},
		{3, "unblock a -policy api -redis " + nobody, "connection refused"},

		{2, "top", "-admin: must be the URL"},
		{3, "top -admin http://127.0.0.1:1/", "connection refused"},

		{0, "policies " + good, `"name": "login"`},
		{0, "policies -check " + good, ""},
		{1, "policies -check " + good + " " + bad, "bad.yaml:5:"},
		{1, "policies " + bad, "bad.yaml:5:"},
		{1, "policies -check nowhere.yaml", "nowhere.yaml"},
		{3, "policies nowhere.yaml", "nowhere.yaml"},
		{2, "policies", "FILE is missing"},

		{0, "explain -policies " + good + " /", ""},
		{0, "explain -json -policies " + good + " /", `"status": 0`},
		{2, "explain -policies " + good, "URL is missing"},
		{2, "explain /", "-policies: must be a file of policies"},
		{3, "explain / -policies nowhere.yaml", "-policies: open nowhere.yaml"},
		{3, "explain / -policies " + bad, "bad.yaml:5:"},
		{3, "explain / -policies " + good + " -redis " + nobody, "connection refused"},
		{2, "explain / -peer here -policies " + good, "the peer must be an IP address"},
		{0, "explain / -peer [2001:db8::1]:80 -policies " + good, "2001:db8:"},
		{1, "explain / -peer @ -policies " + good, "unix socket"},
		{2, "explain ftp://a/ -policies " + good, "http"},
		{2, "explain / -H nothing -policies " + good, "-H: a header must be"},
		{2, "explain - -policies " + good, "standard input: must be a line of curl"},
		{2, "explain / -curl curl -policies " + good, "use one of them"},
		{2, "explain -curl wget -policies " + good, "must begin with curl"},
		{2, "explain / /x -policies " + good, "/x: unexpected argument"},

		{0, "simulate -policies " + good + " " + quiet, "1 request"},
		{0, "simulate -policies " + good + " " + busy, "4 requests"},
		{0, "simulate -fail-above 60% -policies " + good + " " + busy, ""},
		{1, "simulate -fail-above 40% -policies " + good + " " + busy, "policy api denies 50% of its requests, which is more than -fail-above 40%"},
		{1, "simulate -fail-above 0% -policies " + good + " " + busy, "denies 50%"},
		{0, "simulate -fail-above 0% -policies " + good + " " + quiet, ""},
		{0, "simulate -fail-above 0% -policies " + shadow + " " + busy, "shadow"},
		{1, "simulate -fail-above 99% -policies " + good + " " + broken, "most lines could not be read"},
		{1, "simulate -fail-above 99% -policies " + keyless + " " + busy, "policy members found no key in any request"},
		{1, "simulate -fail-above 99% -names tiers -policies " + unknown + " " + busy, "policy tiered is left out"},
		{3, "simulate -policies " + good + " " + garbage, "garbage.log:1: "},
		{3, "simulate -policies " + good + " nowhere.log", "nowhere.log"},
		{3, "simulate -policies " + good + " " + t.TempDir(), "is a folder"},
		{3, "simulate -policies nowhere.yaml " + busy, "nowhere.yaml"},
		{3, "simulate -policies " + bad + " " + busy, "bad.yaml:5:"},
		{2, "simulate " + busy, "-policies: must be a file"},
		{2, "simulate -policies " + good, "LOG is missing"},
		{2, "simulate -policies " + good + " - -", "there twice"},
		{2, "simulate -format csv -policies " + good + " " + busy, `-format: "csv": must be common, combined or json`},
		{2, "simulate -spare 100.1% -policies " + good + " " + busy, "-spare: must be a percentage, such as 99.9%"},
		{2, "simulate -spare 0.999 -policies " + good + " " + busy, "-spare: must be a percentage, such as 99.9%"},
		{2, "simulate -spare NaN% -policies " + good + " " + busy, "-spare: must be a percentage, such as 99.9%"},
		{2, "simulate -clients 0 -policies " + good + " " + busy, "-clients: must be a whole number"},
		{2, "simulate -clients 99999999999999999999 -policies " + good + " " + busy, "-clients: must be a whole number from 1 to "},
		{2, "simulate -map time -policies " + good + " " + busy, "-map: time: must be like time=ts"},
		{2, "simulate -map time=a,time=b -policies " + good + " " + busy, "-map: time: is there twice"},
		{2, "simulate -map nothing=a -policies " + good + " " + busy, `-map: "nothing"`},
		{2, "simulate -extra X-Key -format json -policies " + good + " " + busy, "-extra: only the combined format"},
		{2, "simulate -extra a/b -policies " + good + " " + busy, `-extra`},
		{2, "simulate -html " + busy + " -policies " + good + " " + busy, "is one of the logs"},
		{2, "simulate -html " + kept + " -policies " + kept + " " + busy, "or the file of -policies"},
		{2, "simulate -decisions " + kept + " -policies " + kept + " " + busy, "or the file of -policies"},
		{2, "simulate -html same -decisions ./same -policies " + good + " " + busy, "is the file of -html"},
		{3, "simulate -html nowhere/x.html -policies " + good + " " + busy, "-html: open nowhere"},
		{3, "simulate -decisions nowhere/x -policies " + good + " " + busy, "-decisions: open nowhere"},
	} {
		t.Run(tt.args, func(t *testing.T) { run(t, strings.Fields(tt.args)...).want(t, tt.status, tt.wants) })
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != limitsFile {
		t.Errorf("the file of policies was overwritten: %.80q, %v", text, err)
	}
}

func TestNamesAreSuggestedForFaultsOfNamesOnly(t *testing.T) {
	const hint = "if a name is a function of the program, list it with -names"
	tab := file(t, "tab.yaml", "version: 1\npolicies:\n\t- name: api\n")
	named := file(t, "named.yaml", "version: 1\npolicies:\n  - name: api\n    key: members\n    limit: 1/1h\n")
	for _, args := range []string{"policies -check ", "policies ", "explain / -policies "} {
		if r := run(t, strings.Fields(args+tab)...); strings.Contains(r.out+r.err, hint) {
			t.Errorf("%s: a tab is no name: %s%s", args, r.out, r.err)
		}
		if r := run(t, strings.Fields(args+named)...); !strings.Contains(r.out+r.err, hint) {
			t.Errorf("%s: no hint: %s%s", args, r.out, r.err)
		}
	}
}
