package failure_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

func TestEachKindIsLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := failure.Log{Logger: slog.New(slog.NewTextHandler(&text, nil)), Message: "failed"}
		for i := range 10 {
			l.Log(t.Context(), fmt.Errorf("port %d refused", i), slog.Bool("let_through", true))
			l.Log(t.Context(), errors.New("another"))
		}
		time.Sleep(time.Second)
		l.Log(t.Context(), errors.New("port 99 refused"))
		got := text.String()
		for want, n := range map[string]int{
			`msg=failed error="port 0 refused" let_through=true not_logged_since=0`: 1,
			`error=another not_logged_since=0`:                                      1,
			`error="port 99 refused" not_logged_since=9`:                            1,
			"level=ERROR": 3,
		} {
			if strings.Count(got, want) != n {
				t.Errorf("want %d times %q in\n%s", n, want, got)
			}
		}
	})
}

func TestALevelAndATimeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := failure.Log{Logger: slog.New(slog.NewTextHandler(&text, nil)), Message: "refused", Level: slog.LevelWarn, Every: time.Minute}
		for range 61 {
			l.Log(t.Context(), errors.New("no key"))
			time.Sleep(time.Second)
		}
		l.Warn("look", slog.Int("n", 1))
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 3 || strings.Count(text.String(), "level=WARN") != 3 || !strings.Contains(lines[1], "not_logged_since=59") || !strings.Contains(lines[2], "msg=look n=1") {
			t.Errorf("got\n%s", &text)
		}
	})
}

func TestTextsWithoutEndAreOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := failure.Log{Logger: slog.New(slog.NewTextHandler(&text, nil))}
		for i := range 1000 {
			l.Log(t.Context(), errors.New(strings.Repeat("x", 1+i)))
		}
		if n := strings.Count(text.String(), "\n"); n != 17 {
			t.Errorf("%d lines, want 17", n)
		}
	})
}

// A KeyFunc may put into its error what a client sent.
func TestWhatCannotBePrintedIsEscaped(t *testing.T) {
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"JSON": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		var text strings.Builder
		l := failure.Log{Logger: slog.New(handler(&text))}
		l.Log(t.Context(), errors.New("bad id \"\n\x1b[2J\x7f\u009b\u202e\u2028\xff\""))
		line, rest, _ := strings.Cut(text.String(), "\n")
		if rest != "" || strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
			t.Errorf("%s: %q", name, text.String())
		}
	}
}

func TestLongTextsAreCut(t *testing.T) {
	var text strings.Builder
	l := failure.Log{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	l.Log(t.Context(), errors.New(strings.Repeat("x", 1<<20)))
	if n := text.Len(); n < 1024 || n > 1500 {
		t.Errorf("%d bytes", n)
	}
}

// Each line counts those that were left out since the line before it, also of the kinds for which there is no room.
func TestEachRoundIsCountedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorded()
		for i := range 16 {
			r.log(t, letters(i))
		}
		r.since = 0
		for _, text := range []string{letters(0), "others"} {
			for round, more := range []int{7, 3, 0, 5} {
				time.Sleep(time.Second)
				before := r.since
				if !r.log(t, text) {
					t.Fatalf("%q: round %d was not logged", text, round)
				}
				want := []int64{0, 7, 3, 0}[round]
				if got := r.since - before; got != want {
					t.Errorf("%q: round %d says that %d were not logged, want %d", text, round, got, want)
				}
				for range more {
					if r.log(t, text) {
						t.Fatalf("%q: logged twice in round %d", text, round)
					}
				}
			}
		}
	})
}
