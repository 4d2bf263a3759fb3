package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The README's transcript is what one gets, but for the times.
func TestReadmeTranscript(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, transcript, found := strings.Cut(string(readme), "```console\n$ curl -i http://127.0.0.1:8080/hello\n")
	transcript, _, ends := strings.Cut(transcript, "```\n")
	if !found || !ends {
		t.Fatal("README.md has no transcript")
	}
	transcript = "$ curl -i http://127.0.0.1:8080/hello\n" + transcript

	base, _ := start(t)
	var got strings.Builder
	for line := range strings.Lines(transcript) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		got.WriteString(line)
		here := strings.ReplaceAll(command, "http://127.0.0.1:8080", base)
		out, err := exec.Command("sh", "-c", strings.ReplaceAll(here, "curl -i", "curl -s -i")).Output()
		if err != nil {
			t.Fatalf("%s: %v", here, err)
		}
		got.Write(out)
	}
	times := regexp.MustCompile(`(Date: |Reset: ).*`)
	plain := func(s string) string {
		return strings.TrimSpace(times.ReplaceAllString(strings.ReplaceAll(s, "\r", ""), "$1…"))
	}
	if plain(got.String()) != plain(transcript) {
		t.Errorf("got\n%s\n\nthe README says\n%s", plain(got.String()), plain(transcript))
	}
}
