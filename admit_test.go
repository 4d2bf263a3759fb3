package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A login that is limited by the name in the form, and by address around it.
func TestAdmitAnswersAsTheMiddlewareDoes(t *testing.T) {
	onEachStore(t, func(t *testing.T, s store.Store, _ *clock) {
		var events []*ratelimit.Event
		l := newLimiter(t, ratelimit.Config{Store: s, Observe: func(_ context.Context, e *ratelimit.Event) { events = append(events, e) }})
		perUser := ratelimit.Policy{Name: "user", Limit: ratelimit.PerHour(2)}
		admits := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if l.Admit(w, r, ratelimit.Charge{Policy: perUser, Key: r.URL.Query().Get("user")}) {
				io.WriteString(w, "ok")
			}
		})
		as := func(user string) func(*http.Request) {
			return func(r *http.Request) { r.URL.RawQuery = "user=" + user }
		}
		around := l.Limit(perIP("address", ratelimit.PerHour(9)))(admits)
		byMiddleware := perUser
		byMiddleware.Key = func(*http.Request) (string, error) { return "user:b", nil }
		within := l.Limit(perIP("address", ratelimit.PerHour(9)))(l.Limit(byMiddleware)(okHandler))
		for i := range 3 {
			got, want := get(around, as("user:a"), from("192.0.2.9")), get(within, from("192.0.2.8"))
			// A second may end between the two.
			reset, _ := strconv.ParseInt(got.Header().Get("X-RateLimit-Reset"), 10, 64)
			if got := want.Header().Get("X-RateLimit-Reset"); got == strconv.FormatInt(reset+1, 10) {
				want.Header().Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
			}
			if got.Code != want.Code || got.Body.String() != want.Body.String() || !maps.EqualFunc(got.Header(), want.Header(), func(a, b []string) bool { return a[0] == b[0] }) {
				t.Errorf("request %d: %d %v %s, want as by Limit: %d %v %s", i, got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
			}
			if got.Code == 429 && (got.Header().Get("Retry-After") != "1800" || got.Header().Get("Cache-Control") != "no-store") {
				t.Errorf("denied with %v", got.Header())
			}
		}
		if w := get(around, as("")); w.Code != 403 {
			t.Errorf("without a key: %d", w.Code)
		}
		if e := events[len(events)-1]; e.Allowed || !errors.Is(e.Err, ratelimit.ErrNoKey) {
			t.Errorf("event %+v", e)
		}
	})
}

func TestAdmitRefusesWhatIsMalformed(t *testing.T) {
	var log bytes.Buffer
	l := newLimiter(t, ratelimit.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	optional := ratelimit.Policy{Name: "o", Limit: ratelimit.PerHour(1), Optional: true}
	for name, charges := range map[string][]ratelimit.Charge{
		"nothing":  {},
		"no limit": {{Policy: ratelimit.Policy{Name: "a"}, Key: "k"}},
		"beside":   {{Policy: optional}, {Policy: ratelimit.Policy{}, Key: "k"}},
	} {
		w := httptest.NewRecorder()
		if l.Admit(w, httptest.NewRequest("GET", "/", nil), charges...) || w.Code != 503 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	if !strings.Contains(log.String(), "Admit: charges") {
		t.Errorf("log %q", log.String())
	}
	shadow := ratelimit.Policy{Name: "shadow", Limit: ratelimit.PerHour(1), Shadow: true}
	for _, p := range []ratelimit.Policy{optional, shadow} {
		w := httptest.NewRecorder()
		if !l.Admit(w, httptest.NewRequest("GET", "/", nil), ratelimit.Charge{Policy: p}) || w.Code != 200 {
			t.Errorf("%s without a key: %d", p.Name, w.Code)
		}
	}
}

func TestAdmitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, ratelimit.Config{})
		defer l.Close()
		p := ratelimit.Policy{Name: "queued", Limit: ratelimit.Every(time.Second), MaxWait: time.Minute}
		for i := range 3 {
			begin := time.Now()
			if !l.Admit(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), ratelimit.Charge{Policy: p, Key: "k"}) || time.Since(begin) != min(time.Duration(i), 1)*time.Second {
				t.Errorf("request %d after %v", i, time.Since(begin))
			}
		}
	})
}
