package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/test/testprogram"
)

func TestMain(m *testing.M) { testprogram.Main(m, main) }

func TestWorker(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		until string // it is stopped when this is printed
		wants []string
	}{
		"without arguments on an embedded Redis, which other processes can use": {
			nil, "done ",
			[]string{"Limit: 10/1s burst 20", "-add 0 -redis redis://127.0.0.1:", "begin ", "stopped, "},
		},
		"a job that costs more than the burst could never be done, and must not come back for ever": {
			[]string{"-limit", "100/1s burst 4", "-add", "5", "-workers", "1"}, "reject ",
			[]string{"-4: ratelimit: Wait: policy partner-api: cost 5 can never be paid", "stopped, 0 jobs left\n"},
		},
		"a job whose turn would come too late goes back into the queue": {
			[]string{"-limit", "1/1h burst 5", "-add", "5", "-workers", "1"}, "would come later",
			[]string{"the tokens would come later than MaxWait or the deadline: retry after", "stopped, 3 jobs left\n"},
		},
	} {
		stop, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		out := &untilText{text: c.until, reached: cancel}
		if err := run(stop, c.args, out); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: it does not print %q:\n%s", name, want, out)
			}
		}
	}
}

func TestWorkerArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"-redis":              {"-redis", "http://a"},
		"-limit":              {"-limit", "many"},
		"not defined":         {"-unknown"},
		"unexpected argument": {"more"},
		"must be at least":    {"-workers", "0"},
		"refused":             {"-redis", "redis://127.0.0.1:1"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v", args, err)
		}
	}
}

// An untilText calls reached when text was written to it.
type untilText struct {
	bytes.Buffer
	text    string
	reached func()
}

func (u *untilText) Write(p []byte) (int, error) {
	if strings.Contains(string(p), u.text) {
		u.reached()
	}
	return u.Buffer.Write(p)
}
