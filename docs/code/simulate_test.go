package code_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

var update = flag.Bool("update", false, "write the output of the simulation into the guide")

const choosing = "docs/choosing-a-limit.md"

// simulated begins an output of the command simulate in a document. A line with an ellipsis stands for any lines.
const simulated = "$ ratelimit simulate "

// What the guides and the README show of a simulation is what the command writes, for the policies of the guide and the
// log that the program cmd/ratelimit/testdata/makelog makes. Only the time that it takes may differ.
func TestTheSimulationOfTheGuides(t *testing.T) {
	log, command := makeLog(t), built(t, "cmd/ratelimit")
	output := simulation(t, command, log, policiesOfTheGuide(t))
	shown := 0
	for _, d := range documents(t) {
		blocks, _ := d.split()
		for _, b := range blocks {
			if len(b.lines) == 0 || !strings.HasPrefix(b.lines[0], simulated) {
				continue
			}
			shown++
			whole := d.name == choosing
			if whole && *update {
				lines := slices.Concat(d.lines[:b.line], output, d.lines[b.line+len(b.lines)-1:])
				if err := os.WriteFile(filepath.Join(root, d.name), []byte(strings.Join(lines, "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if line, ok := excerpt(b.lines[1:], output, whole); !ok {
				t.Errorf("%s: the simulation does not write %q here; go test -run %s -update writes %s. It writes:\n%s", d.at(b.line+1+line), b.lines[1+line], t.Name(), choosing, strings.Join(output, "\n"))
			}
		}
	}
	if shown == 0 {
		t.Errorf("%s shows no simulation", choosing)
	}

	// With the burst that the guide advises, only the scraper is denied.
	advised := strings.Join(simulation(t, command, log, strings.Replace(policiesOfTheGuide(t), "burst 10", "burst 15", 1)), "\n")
	if !strings.Contains(advised, " and 1 of ") || !strings.Contains(advised, "ip:203.0.113.77 ") {
		t.Errorf("with a burst of 15:\n%s", advised)
	}
}

// excerpt reports whether lines are those of output from its begin on, or else the first line that is not. Where lines
// have an ellipsis, lines of output are left out.
func excerpt(lines, output []string, whole bool) (int, bool) {
	at := 0
	for i, line := range lines {
		if line == "…" && !whole {
			continue
		}
		if i > 0 && lines[i-1] == "…" && !whole {
			for at < len(output) && timeless(output[at]) != timeless(line) {
				at++
			}
		}
		if at == len(output) || timeless(output[at]) != timeless(line) {
			return i, false
		}
		at++
	}
	if whole && at < len(output) {
		return len(lines) - 1, false
	}
	return 0, true
}

var took = regexp.MustCompile(`, in [^,]+\.$`)

func timeless(line string) string { return took.ReplaceAllString(line, ", in 1 s.") }

// makeLog returns the log of cmd/ratelimit/testdata/makelog.
func makeLog(t *testing.T) []byte {
	t.Helper()
	log, err := exec.Command(built(t, "cmd/ratelimit/testdata/makelog"), "-lines", "50000").Output()
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// built returns a program of this module.
func built(t *testing.T, folder string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(folder))
	if out, err := exec.Command("go", slices.Concat([]string{"build", "-o", program}, testbuild.Flags(), []string{root + "/" + folder})...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// simulation returns the lines that the command writes.
func simulation(t *testing.T, command string, log []byte, policies string) []string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string][]byte{"access.log": log, "limits.yaml": []byte(policies)} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(command, "simulate", "-policies", "limits.yaml", "access.log")
	cmd.Dir = folder
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// policiesOfTheGuide returns the file of policies that the guide simulates.
func policiesOfTheGuide(t *testing.T) string {
	t.Helper()
	blocks, _ := readDocument(t, choosing).split()
	for _, b := range blocks {
		if b.language == "yaml" && len(b.lines) > 0 && strings.HasPrefix(b.lines[0], "version:") {
			return strings.Join(b.lines, "\n") + "\n"
		}
	}
	t.Fatalf("%s has no file of policies", choosing)
	return ""
}

func TestExcerpt(t *testing.T) {
	output := []string{"a", "b", "c, in 0.3 s.", "d", "e"}
	for text, want := range map[string]bool{
		"a": true, "a\nb": true, "a\n…\nd": true, "a\n…\nc, in 12 s.\n…\ne": true, "a\n…": true,
		"b": false, "a\nc, in 0.3 s.": false, "a\nx": false, "a\n…\nx": false, "a\n…\nd\n…\nb": false, "a\nb\nc, on 1 s.": false,
	} {
		if _, ok := excerpt(strings.Split(text, "\n"), output, false); ok != want {
			t.Errorf("%q: %v, want %v", text, ok, want)
		}
	}
	if _, ok := excerpt(output, output, true); !ok {
		t.Error("the whole output is none")
	}
	if _, ok := excerpt(output[:4], output, true); ok {
		t.Error("a part of the output is the whole")
	}
}
