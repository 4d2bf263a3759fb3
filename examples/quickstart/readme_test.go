package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
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

	times := regexp.MustCompile(`(Date: |Reset: ).*`)
	plain := func(s string) string {
		return strings.TrimSpace(times.ReplaceAllString(strings.ReplaceAll(s, "\r", ""), "$1…"))
	}
	var got string
	for range 5 {
		base, _ := start(t)
		begin := time.Now()
		if got = replay(t, transcript, base); plain(got) == plain(transcript) {
			return
		}
		if time.Since(begin) < time.Second {
			break // it was not for a token that came meanwhile
		}
	}
	t.Errorf("got\n%s\n\nthe README says\n%s", plain(got), plain(transcript))
}

// replay runs the commands of a transcript and returns them with what they print.
func replay(t *testing.T, transcript, base string) string {
	t.Helper()
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
	return got.String()
}
