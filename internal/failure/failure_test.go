package failure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/failure"
)

// letters returns a text that is a kind, for each n.
func letters(n int) string {
	return strings.Map(func(r rune) rune { return r + 'a' - '0' }, fmt.Sprint(n))
}

// recorded is what a Log has logged: the errors, and how many were not logged before each.
type recorded struct {
	failure.Log
	texts []string
	at    []time.Time
	since int64
}

func newRecorded() *recorded {
	r := new(recorded)
	r.Logger = slog.New(r)
	return r
}

func (r *recorded) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorded) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorded) WithGroup(string) slog.Handler            { return r }
func (r *recorded) Handle(_ context.Context, line slog.Record) error {
	line.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			r.texts = append(r.texts, a.Value.String())
		case "not_logged_since":
			r.since += a.Value.Int64()
		}
		return true
	})
	r.at = append(r.at, time.Now())
	return nil
}

func (r *recorded) log(t *testing.T, text string) (logged bool) {
	lines := len(r.texts)
	r.Log.Log(t.Context(), errors.New(text))
	return len(r.texts) > lines
}

// Errors that quote a client take all kinds. A minute later there is room for others.
func TestKindsThatAreNotSeenForAMinuteAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorded()
		r.log(t, "refused")
		for i := range 1000 {
			r.log(t, letters(i))
		}
		if r.log(t, "timeout") {
			t.Fatal("not what this test is for")
		}
		for range 59 {
			time.Sleep(time.Second)
			if !r.log(t, "refused") {
				t.Fatal("a kind that is seen all the time was forgotten")
			}
		}
		time.Sleep(time.Second)
		for _, text := range []string{"timeout", "refused", "broken"} {
			if !r.log(t, text) {
				t.Errorf("%q was not logged", text)
			}
			if r.log(t, text) {
				t.Errorf("%q was logged twice", text)
			}
		}
	})
}

// What a kind had left to count is counted in a line of the others.
func TestFailuresOfAKindThatIsForgottenAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorded()
		for i := range 16 {
			for range 10 {
				r.log(t, letters(i))
			}
		}
		time.Sleep(time.Minute)
		for i := range 17 {
			r.log(t, letters(100+i))
		}
		if r.since != 16*9 {
			t.Errorf("%d were not logged, want %d", r.since, 16*9)
		}
	})
}

func TestWhatIsQuotedMakesNoKind(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"quoted":                  {`bad id "x"`, `bad id "y"`, true},
		"with a quote in it":      {`bad id "x\"y"`, `bad id "x\"z"`, true},
		"with a backslash in it":  {`bad id "x\\": late`, `bad id "y\\": late`, true},
		"before what is not":      {`bad id "x": late`, `bad id "x": early`, false},
		"after what is not":       {`bad id "x"`, `good id "x"`, false},
		"a quote that has no end": {`bad id "x`, `bad id "y`, true},
		"numbers":                 {`port 1`, `port 2`, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorded()
			r.log(t, c.a)
			if same := !r.log(t, c.b); same != c.same {
				t.Errorf("%q and %q are the same kind: %t", c.a, c.b, same)
			}
		})
	}
}

// A byte that is not UTF-8 takes three in a kind.
func TestKindsAreCut(t *testing.T) {
	for name, log := range map[string]func(*recorded, int){
		"texts": func(r *recorded, i int) { r.log(t, letters(i)+strings.Repeat("\xff", 2000)) },
		"names": func(r *recorded, i int) {
			r.LogKind(t.Context(), letters(i)+strings.Repeat("x", 2000), errors.New("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorded()
			r.MaxKinds = 256
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range 256 {
				log(r, i)
			}
			kinds := len(r.texts)
			r.texts, r.at = nil, nil
			runtime.GC()
			runtime.ReadMemStats(&after)
			if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kinds != 256 || kept > 100<<10 {
				t.Errorf("%d kinds keep %d bytes", kinds, kept)
			}
			runtime.KeepAlive(r)
		})
	}
}

func TestANamedKindIsNotThatOfTheText(t *testing.T) {
	r := newRecorded()
	for i := range 10 {
		r.LogKind(t.Context(), "v1", errors.New(letters(i)))
		r.LogKind(t.Context(), "v2", errors.New(letters(i)))
	}
	if len(r.texts) != 2 {
		t.Errorf("got lines %q; want one for each kind", r.texts)
	}
}

// Whatever fails when, there are at most 17 lines a second, and none is without its kind's count.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rand, r, failures := rand.New(rand.NewPCG(15, 0)), newRecorded(), 0
		for range 20_000 {
			failures++
			r.log(t, letters(rand.IntN(1+rand.IntN(100))))
			switch rand.IntN(200) {
			case 0:
				time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Minute))))
			case 1, 2, 3:
				time.Sleep(time.Duration(rand.IntN(int(2 * time.Second))))
			}
		}
		first := 0
		for i, at := range r.at {
			for at.Sub(r.at[first]) >= time.Second {
				first++
			}
			if i-first+1 > 17 {
				t.Fatalf("%d lines within a second", i-first+1)
			}
		}
		// The rest comes with the lines that follow.
		time.Sleep(time.Second)
		for i := range 200 {
			failures++
			r.log(t, letters(i))
		}
		time.Sleep(time.Second)
		for i := range 200 {
			failures++
			r.log(t, letters(i))
		}
		if told := int64(len(r.texts)) + r.since; told > int64(failures) || told < int64(failures)-400 {
			t.Errorf("%d lines, and %d not logged, of %d failures", len(r.texts), r.since, failures)
		}
		if len(r.texts) < 1000 {
			t.Errorf("only %d lines", len(r.texts))
		}
	})
}

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
