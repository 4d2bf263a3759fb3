package failurelog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/failurelog"
)

func TestEachKindIsLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := failurelog.Log{Logger: slog.New(slog.NewTextHandler(&text, nil)), Message: "failed"}
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

func TestTextsWithoutEndAreOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := failurelog.Log{Logger: slog.New(slog.NewTextHandler(&text, nil))}
		for i := range 1000 {
			l.Log(t.Context(), errors.New(strings.Repeat("x", 1+i)))
		}
		if n := strings.Count(text.String(), "\n"); n != 17 {
			t.Errorf("%d lines, want 17", n)
		}
	})
}
