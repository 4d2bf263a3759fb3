package command_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

var update = flag.Bool("update", false, "write the outputs into docs/command.md")

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

var marker = regexp.MustCompile(`^<!-- output: (\w+) -->$`)

// The outputs of the guide are those of the command, and it names each command.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		made = append(made, lines[i])
		m := marker.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		for i++; i+1 < len(lines) && lines[i+1] != "```"; i++ {
		}
		i++
		made = append(made, "```")
		sample, ok := samples[m[1]]
		if !ok {
			t.Fatalf("no sample %q", m[1])
		}
		made = append(made, strings.Split(strings.TrimSuffix(sample(t), "\n"), "\n")...)
		made = append(made, "```")
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
