package outbound

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 500e6, time.UTC) // 1795348800.5

func TestHeaders(t *testing.T) {
	known := func(left int64, reset time.Duration) Report {
		return Report{Known: true, Remaining: left, Reset: reset}
	}
	for _, c := range []struct {
		header string // fields, one in a line
		want   Report
	}{
		{"", Report{}},
		{"Content-Type: text/plain", Report{}},

		{"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 59\nX-RateLimit-Reset: 1795348860", known(59, 59500*time.Millisecond)},
		{"X-RateLimit-Remaining: 59\nX-RateLimit-Reset: 1795348860000", known(59, 59500*time.Millisecond)},
		{"X-RateLimit-Remaining: 59\nX-RateLimit-Reset: 60", known(59, time.Minute)},
		{"X-RateLimit-Remaining: 594.0\nX-RateLimit-Reset: 360", known(594, 6*time.Minute)},
		{"X-RateLimit-Remaining: 59\nX-RateLimit-Reset: 2026-11-22T12:01:00Z", known(59, 59500*time.Millisecond)},
		{"X-RateLimit-Remaining: 59\nX-RateLimit-Reset: Sun, 22 Nov 2026 12:01:00 GMT", known(59, 59500*time.Millisecond)},
		{"X-RateLimit-Remaining: 59\nX-RateLimit-Reset: 1795348799", known(59, -1500*time.Millisecond)},
		{"X-RateLimit-Remaining: 59", known(59, 0)},
		{"X-RateLimit-Remaining: 59\nX-RateLimit-Reset: soon", known(59, 0)},
		{"X-Rate-Limit-Remaining: 59\nX-Rate-Limit-Reset: 60", known(59, time.Minute)},
		{"RateLimit-Remaining: 59\nRateLimit-Reset: 60", known(59, time.Minute)},

		// The clock of the server.
		{"Date: Sun, 22 Nov 2026 12:00:02 GMT\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1795348860", known(1, 59500*time.Millisecond)},
		{"Date: Sun, 22 Nov 2026 11:00:00 GMT\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1795345260", known(1, time.Minute)},

		{`RateLimit: "default";r=50;t=30`, known(50, 30*time.Second)},
		{`RateLimit: default;r=50;t=30`, known(50, 30*time.Second)},
		{`RateLimit: "a,b;r=1";r=50;t=30`, known(50, 30*time.Second)},
		{`RateLimit: "a\",\"";r=50 ; t=30;pk=:cHVi:`, known(50, 30*time.Second)},
		{`RateLimit: "hour";r=50;t=30, "day";r=7;t=4000, "week";r=99;t=1`, known(7, 4000*time.Second)},
		{"RateLimit: \"hour\";r=50;t=30\nRateLimit: \"day\";r=7;t=4000", known(7, 4000*time.Second)},
		{`RateLimit: "hour";r=50;t=30, "other"`, known(50, 30*time.Second)},
		{`RateLimit: limit=100, remaining=50, reset=30`, known(50, 30*time.Second)},
		{`RateLimit: limit=100;remaining=50;reset=30`, known(50, 30*time.Second)},
		{"RateLimit: \"default\";r=50;t=30\nX-RateLimit-Remaining: 1", known(50, 30*time.Second)},
		{"RateLimit: \"default\";t=30\nX-RateLimit-Remaining: 1", known(1, 0)},
		{`RateLimit: "unclosed;r=50;t=30`, Report{}},

		// Malformed, negative, twice.
		{"X-RateLimit-Remaining: -1\nX-RateLimit-Reset: 60", Report{}},
		{"X-RateLimit-Remaining: +1", Report{}},
		{"X-RateLimit-Remaining: 1e3", Report{}},
		{"X-RateLimit-Remaining: 1.e", Report{}},
		{"X-RateLimit-Remaining: .5", Report{}},
		{"X-RateLimit-Remaining: 5 6", Report{}},
		{"X-RateLimit-Remaining: 9999999999999999", Report{}},
		{"X-RateLimit-Remaining: 1\nX-RateLimit-Remaining: 2", Report{}},
		{"X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1\nX-RateLimit-Reset: 1", known(1, 0)},
		{"X-RateLimit-Remaining: 1\nX-RateLimit-Reset: -5", known(1, 0)},
	} {
		h := parse(t, c.header)
		got, ok := readHeaders(200, h, noon)
		if got != c.want || ok != c.want.Known {
			t.Errorf("%q: %+v, %t, want %+v", c.header, got, ok, c.want)
		}
	}
}

func TestHeadersOfRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		want   time.Duration // -1: no refusal
	}{
		{429, "", 0},
		{429, "Retry-After: 120", 2 * time.Minute},
		{429, "Retry-After: 0", 0},
		{429, "Retry-After: Sun, 22 Nov 2026 12:02:00 GMT", 119500 * time.Millisecond},
		{429, "Retry-After: Sunday, 22-Nov-26 12:02:00 GMT", 119500 * time.Millisecond},
		{429, "Date: Sun, 22 Nov 2026 10:00:00 GMT\nRetry-After: Sun, 22 Nov 2026 10:02:00 GMT", 2 * time.Minute},
		{429, "Retry-After: Sun, 22 Nov 2026 11:00:00 GMT", 0},
		{429, "Retry-After: -5", 0},
		{429, "Retry-After: 5\nRetry-After: 5", 0},
		{403, "", -1},
		{403, "Retry-After: 60", time.Minute},
		{403, "X-RateLimit-Remaining: 7", -1},
		{403, "X-RateLimit-Remaining: 0", 0},
		{503, "", -1},
		{503, "Retry-After: 60", time.Minute},
		{200, "Retry-After: 60", -1},
		{301, "Retry-After: 60", -1},
		{500, "Retry-After: 60", -1},
	} {
		got, _ := readHeaders(c.status, parse(t, c.header), noon)
		want := Report{Known: got.Known, Remaining: got.Remaining, Refused: c.want >= 0, RetryAfter: max(0, c.want)}
		if got != want {
			t.Errorf("%d %q: %+v, want %+v", c.status, c.header, got, want)
		}
	}
}

func parse(t *testing.T, text string) http.Header {
	t.Helper()
	h := make(http.Header)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			t.Fatalf("no field: %q", line)
		}
		h.Add(name, value)
	}
	return h
}

func FuzzHeaders(f *testing.F) {
	f.Add(429, "120", "", "", "", "")
	f.Add(403, "Sun, 22 Nov 2026 12:02:00 GMT", "", "0", "1795348860", "Sun, 22 Nov 2026 10:00:00 GMT")
	f.Add(200, "", `"a";r=50;t=30, "b,\";";r=7;t=1`, "59.0", "2026-11-22T12:01:00Z", "")
	f.Add(200, "-1", "limit=1, remaining=2, reset=3", "999999999999999", "-9223372036854775808", "Monday")
	f.Fuzz(func(t *testing.T, status int, after, rateLimit, remaining, reset, date string) {
		h := make(http.Header)
		for name, value := range map[string]string{
			"Retry-After": after, "RateLimit": rateLimit, "X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": reset, "Date": date,
		} {
			if value != "" {
				h.Set(name, value)
			}
		}
		r, ok := readHeaders(status, h, noon)
		if ok != (r.Known || r.Refused) || r.Remaining < 0 || r.RetryAfter < 0 {
			t.Fatalf("%+v, %t", r, ok)
		}
		if r.Refused && status != 429 && status != 403 && status != 503 {
			t.Fatalf("status %d is a refusal", status)
		}
		if !r.Known && (r.Remaining != 0 || r.Reset != 0) {
			t.Fatalf("%+v", r)
		}

		// Whatever it is, it stops for an hour at most, and takes no tokens that nobody had.
		q := &Quota{maxStop: time.Hour}
		v := &view{line: newLine()}
		turn := &Turn{key: "k", charged: noon.Add(-2 * time.Second), sent: noon.Add(-time.Second), left: 10, known: true}
		turn.policy.Limit.Rate, turn.policy.Limit.Per = 10, time.Second
		for range 3 {
			stop, excess := v.learn(turn, r, noon, q.maxStop)
			if stop < 0 || stop > time.Hour || v.stop.Sub(noon) > time.Hour || excess < 0 || excess > 10*(3600+100) {
				t.Fatalf("%+v: stop %v, excess %v", r, stop, excess)
			}
			if v.stop.After(noon) != r.Refused {
				t.Fatalf("%+v: stop %v, until %v", r, stop, v.stop)
			}
		}
	})
}
