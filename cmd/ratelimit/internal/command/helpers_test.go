package command_test

import (
	"bytes"
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/command"
)

// A ran is what a run of the command left.
type ran struct {
	status   int
	out, err string
}

// A setup is what a run finds, beside its arguments.
type setup struct {
	env      map[string]string
	stdin    string
	terminal bool // the output is a terminal
}

func (s setup) run(t *testing.T, args ...string) ran {
	t.Helper()
	r := s.runIn(t.Context(), args...)
	for tries := 1; tries < 10 && r.findsSlow(); tries++ {
		r = s.runIn(t.Context(), args...) // no server of these tests is slow: the processors were busy
	}
	return r
}

// findsSlow reports whether diagnose finds that Redis, or the way to it, is slow.
func (r ran) findsSlow() bool {
	return strings.Contains(r.out, "there and back") || strings.Contains(r.out, "longer than another command")
}

func (s setup) runIn(ctx context.Context, args ...string) ran {
	var out, err bytes.Buffer
	getenv := func(name string) string { return s.env[name] }
	r := ran{}
	if s.terminal {
		r.status = command.Run(ctx, args, getenv, strings.NewReader(s.stdin), terminal{&out}, terminal{&err})
	} else {
		r.status = command.Run(ctx, args, getenv, strings.NewReader(s.stdin), &out, &err)
	}
	r.out, r.err = out.String(), err.String()
	return r
}

// run runs the command without an environment.
func run(t *testing.T, args ...string) ran {
	t.Helper()
	return setup{}.run(t, args...)
}

// want fails the test unless the status is that one, and the output has all texts.
func (r ran) want(t *testing.T, status int, texts ...string) {
	t.Helper()
	cut := func(text string) string { return text[:min(len(text), 2000)] }
	if r.status != status {
		t.Errorf("status %d, want %d\n%s%s", r.status, status, cut(r.out), cut(r.err))
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("no %q in:\n%s%s", text, cut(r.out), cut(r.err))
		}
	}
}

// A terminal is a writer that says it is one.
type terminal struct{ *bytes.Buffer }

func (terminal) Stat() (fs.FileInfo, error) { return characterDevice{}, nil }

type characterDevice struct{ fs.FileInfo }

func (characterDevice) Mode() fs.FileMode { return fs.ModeDevice | fs.ModeCharDevice }
