package command_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

var update = flag.Bool("update", false, "write the tables and outputs into docs/command.md")

const guide = "../../../../docs/command.md"

// A sample makes an output of the guide, with its command line.
var samples = map[string]func(*testing.T) string{
	"diagnose": func(t *testing.T) string {
		server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
		return session(t, setup{}, strings.NewReplacer(server.Addr(), "localhost:6379"), "diagnose", "-redis", "redis://"+server.Addr())
	},
	"peek": func(t *testing.T) string {
		server := redistest.Start(t)
		take(t, program(t, server.Client(), redisstore.Config{}), "ip:192.0.2.1", 10)
		return session(t, setup{}, strings.NewReplacer(server.Addr(), "localhost:6379"), "peek", "-redis", "redis://"+server.Addr(), "-policy", "api", "ip:192.0.2.1")
	},
	"limits get": func(t *testing.T) string {
		server := redistest.Start(t)
		url := "redis://" + server.Addr()
		run(t, "limits", "set", "api", "120/1m burst 20", "-redis", url, "-was", "60/1m burst 10", "-by", "alice", "-why", "sale").want(t, 0)
		out := session(t, setup{}, strings.NewReplacer(server.Addr(), "localhost:6379"), "limits", "get", "-redis", url)
		return regexp.MustCompile(`20\d\d-\S+Z`).ReplaceAllString(out, "2026-03-01T12:00:00Z")
	},
	"top": func(t *testing.T) string {
		server := adminSite(t)
		s := setup{env: map[string]string{"RATELIMIT_ADMIN_HEADER": "Authorization: Bearer " + canary}}
		out := session(t, s, strings.NewReplacer(server.URL, "http://localhost:8080"), "top", "-admin", server.URL+"/admin/", "-policy", "login")
		return regexp.MustCompile(`(?m)^\S+Z, (.*) in [^,\n]+$`).ReplaceAllString(out, "2026-03-01T12:00:00Z, $1 in 5 min")
	},
}

// session returns a command line and what the command writes.
func session(t *testing.T, s setup, replace *strings.Replacer, args ...string) string {
	t.Helper()
	r := s.run(t, args...)
	var words []string
	for _, arg := range args {
		if strings.ContainsAny(arg, " '\"") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return replace.Replace("$ ratelimit " + strings.Join(words, " ") + "\n" + r.out + r.err)
}

var marker = regexp.MustCompile(`^<!-- (flags|output): (\w[\w ]*) -->$`)

// The flags and the outputs of the guide are those of the command.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	marks := make(map[string]bool)
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		made = append(made, lines[i])
		m := marker.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		marks[m[1]+" "+m[2]] = true
		if m[1] == "flags" {
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|") {
				i++
			}
			made = append(made, redisTable()...)
			continue
		}
		for i++; i+1 < len(lines) && lines[i+1] != "```"; i++ {
		}
		i++
		made = append(made, "```")
		sample, ok := samples[m[2]]
		if !ok {
			t.Fatalf("no sample %q", m[2])
		}
		made = append(made, strings.Split(strings.TrimSuffix(sample(t), "\n"), "\n")...)
		made = append(made, "```")
	}
	if !marks["flags redis"] {
		t.Error("the guide does not have the flags for Redis")
	}
	for _, c := range command.List() {
		if !strings.Contains(string(text), "\n## "+c.Name+"\n") && !strings.Contains(string(text), "`"+c.Name) {
			t.Errorf("%s: the guide does not have the command", c.Name)
		}
	}
	got := strings.Join(made, "\n")
	if got == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(guide, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wrote := strings.Split(got, "\n")
	for i := range min(len(wrote), len(lines)) {
		if wrote[i] != lines[i] {
			t.Fatalf("%s:%d differs; go test -run TestGuide -update writes it\ngot  %s\nhave %s", guide, i+1, wrote[i], lines[i])
		}
	}
	t.Fatalf("%s: has another end; go test -run TestGuide -update writes it", guide)
}

// redisTable returns the flags of all commands that talk to Redis. Only the help has the flags of one command.
func redisTable() []string {
	table := []string{"| Flag | |", "|---|---|"}
	for _, flag := range command.RedisFlags() {
		table = append(table, fmt.Sprintf("| `%s` | %s |", flag[0], flag[1]))
	}
	return table
}

// Every example of the help is a command line that the command takes, up to the file, the Redis or the page.
func TestExamplesOfTheHelp(t *testing.T) {
	for _, c := range command.List() {
		if len(c.Examples) == 0 {
			t.Errorf("%s: no example", c.Name)
		}
		r := run(t, append([]string{"help"}, strings.Fields(c.Name)...)...)
		r.want(t, 0, "ratelimit "+c.Name+" [flags]", "Exit status: 0", "Examples:\n")
		if also := run(t, append(strings.Fields(c.Name), "-h")...); also.status != 0 || also.out != r.out {
			t.Errorf("%s: -h differs from help", c.Name)
		}
	}
}
