package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// read reads a log.
func read(t testing.TB, cfg Config, log io.Reader) (entries []Entry, faults []Fault) {
	t.Helper()
	r, err := NewReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for entry, fault := range r.Lines(log) {
		if entry != nil {
			entries = append(entries, *entry)
		} else {
			faults = append(faults, *fault)
		}
	}
	return entries, faults
}

func TestFormats(t *testing.T) {
	at := time.Date(2026, 10, 10, 13, 55, 36, 0, time.FixedZone("", -7*3600))
	for name, c := range map[string]struct {
		cfg    Config
		line   string
		micros int64 // after at
		remote string
		method string
		url    string
		host   string
		status int
		bytes  int64
		header http.Header
	}{
		"common": {
			line:   `192.0.2.1 - frank [10/Oct/2026:13:55:36 -0700] "GET /a/b?c=d HTTP/1.0" 200 2326`,
			remote: "192.0.2.1:0", method: "GET", url: "/a/b?c=d", status: 200, bytes: 2326, header: http.Header{},
		},
		"combined": {
			line:   `2001:db8::1 - - [10/Oct/2026:13:55:36 -0700] "POST / HTTP/2.0" 304 - "-" "curl/8"`,
			remote: "[2001:db8::1]:0", method: "POST", url: "/", status: 304, header: http.Header{"User-Agent": {"curl/8"}},
		},
		"a name of a user with blanks and brackets": {
			line:   `192.0.2.1 - frank [x] "y [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 1 "-" "-"`,
			remote: "192.0.2.1:0", method: "GET", url: "/", status: 200, bytes: 1, header: http.Header{},
		},
		"escapes": {
			line:   `192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET /\x22\"\\ HTTP/1.1" 200 1 "a\tb" "c\qd"`,
			remote: "192.0.2.1:0", method: "GET", url: `/%22%22%5C`, status: 200, bytes: 1, header: http.Header{"Referer": {"a\tb"}, "User-Agent": {`c\qd`}},
		},
		"further fields": {
			cfg:    Config{Extra: []string{"x-forwarded-for", "-", "host"}},
			line:   `192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 1 "-" "-" "203.0.113.1, 10.0.0.1" rt=0.01 "x" "shop.example" "y"`,
			remote: "192.0.2.1:0", method: "GET", url: "/", host: "shop.example", status: 200, bytes: 1, header: http.Header{"X-Forwarded-For": {"203.0.113.1, 10.0.0.1"}},
		},
		"a Unix socket": {
			line:   `unix: - - [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 1 "-" "-"`,
			remote: "@", method: "GET", url: "/", status: 200, bytes: 1, header: http.Header{},
		},
		"a host name": {
			line:   `web.example - - [10/Oct/2026:13:55:36.250 -0700] "GET http://shop.example/x HTTP/1.1" 000 1` + "\r",
			remote: "web.example:0", method: "GET", url: "http://shop.example/x", host: "shop.example", bytes: 1, micros: 250_000, header: http.Header{},
		},
		"nginx as JSON": {
			line:   `{"time_iso8601":"2026-10-10T13:55:36-07:00","remote_addr":"192.0.2.1","request":"GET /x?y HTTP/1.1","status":"200","body_bytes_sent":"7","http_host":"shop.example","http_x_forwarded_for":"-"}`,
			remote: "192.0.2.1:0", method: "GET", url: "/x?y", host: "shop.example", status: 200, bytes: 7, header: http.Header{},
		},
		"Caddy": {
			line:   fmt.Sprintf(`{"level":"info","ts":%d.123456,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.1","proto":"HTTP/2.0","method":"GET","host":"shop.example","uri":"/x","headers":{"User-Agent":["curl/8"],"X-Forwarded-For":["203.0.113.1","10.0.0.2"]}},"duration":0.01,"size":2900,"status":200}`, at.Unix()),
			remote: "192.0.2.1:0", method: "GET", url: "/x", host: "shop.example", status: 200, bytes: 2900, micros: 123_456, header: http.Header{"User-Agent": {"curl/8"}, "X-Forwarded-For": {"203.0.113.1", "10.0.0.2"}},
		},
		"Traefik": {
			line:   `{"ClientHost":"192.0.2.1","DownstreamContentSize":19,"DownstreamStatus":404,"RequestHost":"shop.example","RequestMethod":"GET","RequestPath":"/x","RequestProtocol":"HTTP/1.1","StartUTC":"2026-10-10T20:55:36.5Z","level":"info","time":"2026-10-10T20:55:37Z"}`,
			remote: "192.0.2.1:0", method: "GET", url: "/x", host: "shop.example", status: 404, bytes: 19, micros: 1_000_000, header: http.Header{},
		},
		"a mapping": {
			cfg:    Config{Fields: map[string]string{"time": "when.ms", "addr": "client.ip", "method": "m", "url": "u", "header.x-api-key": "key", "status": "s"}},
			line:   fmt.Sprintf(` {"when":{"ms":%d},"client":{"ip":"192.0.2.1"},"client.ip":"x","m":"GET","u":"https:\/\/a.example\/x","key":"k\u00e91","s":200.0,"time":"never","nested":[{"m":1},[2]]} `, at.UnixMilli()),
			remote: "x:0", method: "GET", url: "https://a.example/x", host: "a.example", status: 200, header: http.Header{"X-Api-Key": {"ké1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			entries, faults := read(t, c.cfg, strings.NewReader(c.line+"\n"))
			if len(entries) != 1 {
				t.Fatalf("faults %+v", faults)
			}
			e, r := &entries[0], entries[0].Request
			if want := at.UnixMicro() + c.micros; e.Time != want {
				t.Errorf("time %d, want %d", e.Time, want)
			}
			if r.RemoteAddr != c.remote || r.Method != c.method || r.URL.String() != c.url || r.Host != c.host {
				t.Errorf("%s %s %s of %q from %s", r.Method, r.URL, r.Proto, r.Host, r.RemoteAddr)
			}
			if e.Status != c.status || e.Bytes != c.bytes {
				t.Errorf("status %d, %d bytes", e.Status, e.Bytes)
			}
			if !reflect.DeepEqual(r.Header, c.header) {
				t.Errorf("header %q", r.Header)
			}
		})
	}
}

func TestBadLines(t *testing.T) {
	clf := func(time, request, status, size string) string {
		return fmt.Sprintf(`192.0.2.1 - - [%s] "%s" %s %s "-" "-"`, time, request, status, size)
	}
	const now, get = "10/Oct/2026:13:55:36 -0700", "GET / HTTP/1.1"
	for line, want := range map[string]*Reason{
		"":                                         Empty,
		" \t":                                      Empty,
		"what":                                     NotCLF,
		clf(now, get, "200", "1")[:60]:             NotCLF,
		`192.0.2.1 "GET / HTTP/1.1"`:               NotCLF,
		clf(now, "-", "400", "0"):                  WrongRequest,
		clf(now, "GET /", "400", "0"):              WrongRequest,
		clf(now, "GET / x HTTP/1.1", "400", "0"):   WrongRequest,
		clf(now, "G@T / HTTP/1.1", "400", "0"):     WrongRequest,
		clf(now, "GET / HTTP/11", "400", "0"):      WrongRequest,
		clf(now, `\x16\x03\x01`, "400", "0"):       WrongRequest,
		clf(now, "GET /%zz HTTP/1.1", "400", "0"):  WrongURL,
		clf(now, "GET items HTTP/1.1", "400", "0"): WrongURL,
		clf(now, get, "99", "0"):                   WrongStatus,
		clf(now, get, "2000", "0"):                 WrongStatus,
		clf(now, get, "+20", "0"):                  WrongStatus,
		clf(now, get, "200", "-5"):                 WrongSize,
		clf(now, get, "200", "99999999999999999999999999999999999"): WrongSize,
	} {
		if entries, faults := read(t, Config{Format: Combined}, strings.NewReader(line+"\n")); len(entries) != 0 || len(faults) != 1 || faults[0].Reason != want || faults[0].Line != 1 {
			t.Errorf("%q: %d entries, faults %+v, want %v", line, len(entries), faults, want)
		}
	}
	for _, time := range []string{
		"10/Foo/2026:13:55:36 -0700", "31/Apr/2026:13:55:36 -0700", "29/Feb/2026:13:55:36 -0700", "00/Oct/2026:13:55:36 -0700", "10/Oct/1969:13:55:36 -0700",
		"10/Oct/0000:13:55:36 -0700", "10/Oct/-026:13:55:36 -0700", "10/Oct/292277026596:13:55:36 -0700", "31/Dec/9999:23:59:59 -0700", "10/Oct/2026:24:00:00 -0700",
		"10/Oct/2026:13:55:60 -0700", "10/Oct/2026:13:55:36 -070", "10/Oct/2026:13:55:36", "99999999999999999999", "1e300", "-5",
	} {
		if _, faults := read(t, Config{Format: Combined}, strings.NewReader(clf(time, get, "200", "1"))); len(faults) != 1 || faults[0].Reason != WrongTime {
			t.Errorf("%s: faults %+v, want %v", time, faults, WrongTime)
		}
	}
	const rest = `"addr":"192.0.2.1","method":"GET","url":"/"`
	for line, want := range map[string]*Reason{
		"":                           Empty,
		"x":                          NotJSON,
		"[]":                         NotJSON,
		"{}":                         NoTime,
		"{}}":                        NotJSON,
		`{"time":1,}`:                NotJSON,
		`{"time":1} x`:               NotJSON,
		`{"time":null,` + rest + `}`: NoTime,
		`{"time":true,` + rest + `}`: WrongTime,
		`{"time":-1,` + rest + `}`:   WrongTime,
		`{"time":99999999999999999999,` + rest + `}`:                        WrongTime,
		`{"time":1e400,` + rest + `}`:                                       WrongTime,
		`{"time":{"a":1},` + rest + `}`:                                     NoTime,
		`{"time":1,"method":"GET","url":"/"}`:                               NoAddress,
		`{"time":1,"addr":"a"}`:                                             NoRequest,
		`{"time":1,"status":1e9,` + rest + `}`:                              WrongStatus,
		`{"time":1,"bytes":1.5,` + rest + `}`:                               WrongSize,
		`{"time":1,"bytes":-1,` + rest + `}`:                                WrongSize,
		`{"time":1,"addr":"a","request":"GET /"}`:                           WrongRequest,
		strings.Repeat(`{"a":`, 10_001) + "1" + strings.Repeat("}", 10_001): NotJSON,
	} {
		if entries, faults := read(t, Config{Format: JSON}, strings.NewReader(line+"\n")); len(entries) != 0 || len(faults) != 1 || faults[0].Reason != want {
			t.Errorf("%.100q: %d entries, faults %.200v, want %v", line, len(entries), faults, want)
		}
	}
	if _, faults := read(t, Config{Extra: []string{"X-Api-Key"}}, strings.NewReader(clf(now, get, "200", "1"))); len(faults) != 1 || faults[0].Reason != FewFields {
		t.Errorf("too few fields: %+v", faults)
	}
	if _, faults := read(t, Config{Format: Common}, strings.NewReader("x")); len(faults) != 1 || faults[0].Reason != NotCLF {
		t.Errorf("not common: %+v", faults)
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]string{
		"10/Oct/2026:13:55:36 +0530":     "2026-10-10T08:25:36Z",
		"29/Feb/2028:00:00:00 +0000":     "2028-02-29T00:00:00Z",
		"31/Dec/9999:23:59:59 +0000":     "9999-12-31T23:59:59Z",
		"2026-10-10T13:55:36Z":           "2026-10-10T13:55:36Z",
		"2026-10-10 13:55:36.5+02:00":    "2026-10-10T11:55:36.5Z",
		"2026-10-10T13:55:36,123456789Z": "2026-10-10T13:55:36.123456Z",
		"2026-10-10T13:55:36-0700":       "2026-10-10T20:55:36Z",
		"2026-10-10T13:55:36 +0000":      "2026-10-10T13:55:36Z",
		"0":                              "1970-01-01T00:00:00Z",
		"1791640536":                     "2026-10-10T13:55:36Z",
		"1791640536.250":                 "2026-10-10T13:55:36.25Z",
		"1791640536.0000009":             "2026-10-10T13:55:36.000001Z",
		"1791640536250":                  "2026-10-10T13:55:36.25Z",
		"1791640536250.75":               "2026-10-10T13:55:36.25075Z",
		"1791640536250125":               "2026-10-10T13:55:36.250125Z",
		"1791640536250125999":            "2026-10-10T13:55:36.250126Z",
		"1.791640536e9":                  "2026-10-10T13:55:36Z",
		"99999999999":                    "5138-11-16T09:46:39Z",
		"100000000000":                   "1973-03-03T09:46:40Z",
		"100000000000000":                "1973-03-03T09:46:40Z",
	} {
		got, ok := parseTime(text)
		if !ok || time.UnixMicro(got).UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %v %v, want %s", text, time.UnixMicro(got).UTC(), ok, want)
		}
	}
}

// Lines are the same however the file is cut when it is read, and however it is packed.
func TestLongLinesAndManyOfThem(t *testing.T) {
	good := `192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET /%s HTTP/1.1" 200 1` + "\n"
	fill := func(n int) string { return fmt.Sprintf(good, strings.Repeat("a", n-len(good)+2)) } // of n bytes
	var all strings.Builder
	want := make(map[int64]bool) // whether a line is good
	line := int64(0)
	add := func(text string, ok bool) {
		line++
		all.WriteString(text)
		want[line] = ok
	}
	for i := range 4000 {
		add(fill(100+i%500), true)
	}
	add(fill(MaxLine+1), true) // and its end
	add(fill(MaxLine+2), false)
	add(fill(100), true)
	add(fill(3*MaxLine), false)
	add(fill(MaxLine), true)
	for i := range 4000 {
		add(fill(100+i%700), true)
	}
	add(strings.TrimSuffix(fill(200), "\n"), true)
	text := all.String()
	packed := func(level int, parts ...string) io.Reader {
		var b bytes.Buffer
		for _, part := range parts {
			w, _ := gzip.NewWriterLevel(&b, level)
			w.Write([]byte(part))
			w.Close()
		}
		return &b
	}
	for name, file := range map[string]io.Reader{
		"at once":       strings.NewReader(text),
		"in halves":     iotest.HalfReader(strings.NewReader(text)),
		"with the end":  iotest.DataErrReader(strings.NewReader(text)),
		"packed":        packed(6, text),
		"several parts": packed(0, text[:1], text[1:5000], text[5000:2_000_000], text[2_000_000:]),
	} {
		entries, faults := read(t, Config{}, file)
		if int64(len(entries)+len(faults)) != line {
			t.Errorf("%s: %d good and %d bad, want %d", name, len(entries), len(faults), line)
		}
		for i := range entries {
			if !want[entries[i].Line] {
				t.Errorf("%s: line %d is good", name, entries[i].Line)
			}
		}
		for _, f := range faults {
			if want[f.Line] || f.Reason != TooLong || len(f.Text) != shown {
				t.Errorf("%s: line %d: %v, with %d bytes shown", name, f.Line, f.Reason, len(f.Text))
			}
		}
	}
}

func TestFilesThatCannotBeReadToTheirEnd(t *testing.T) {
	line := `192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 1` + "\n"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write([]byte(strings.Repeat(line, 10)))
	w.Close()
	for want, c := range map[string]struct {
		log  io.Reader
		good int
	}{
		"ends early":     {bytes.NewReader(packed.Bytes()[:packed.Len()-9]), 9},
		"bad sector":     {io.MultiReader(strings.NewReader(line), iotest.ErrReader(errors.New("bad sector"))), 1},
		"invalid header": {strings.NewReader("\x1f\x8bnot really"), 0},
	} {
		entries, faults := read(t, Config{}, c.log)
		if len(entries) < c.good {
			t.Errorf("%s: %d entries, want %d", want, len(entries), c.good)
		}
		last := len(faults) - 1
		if last < 0 || faults[last].Reason != BrokenFile || faults[last].Line < 1 || !strings.Contains(faults[last].Err.Error(), want) {
			t.Errorf("no fault with %q in %+v", want, faults)
		}
	}
}

func TestWrongConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Format: "xml"}, `-format: "xml": must be common, combined or json`},
		{Config{Fields: map[string]string{"adr": "x"}}, `"adr": must be one of time, addr, method`},
		{Config{Fields: map[string]string{"header.": "x"}}, `"header.": must be one of`},
		{Config{Fields: map[string]string{"addr": ""}}, "addr: must be the name of a field"},
		{Config{Fields: map[string]string{"header.host": "x"}}, "the header Host is host"},
		{Config{Format: Combined, Fields: map[string]string{"addr": "x"}}, "use format json"},
		{Config{Format: JSON, Extra: []string{"X-Api-Key"}}, "only the combined format"},
		{Config{Extra: []string{"X Api"}}, `-extra: "X Api": must be the name`},
	} {
		if _, err := NewReader(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

func TestFormatIsFoundOut(t *testing.T) {
	const common = `192.0.2.1 - - [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.1" 200 1`
	for text, want := range map[string]string{
		common:                       Common,
		"\n\n" + common + ` "-" "-"`: Combined,
		"garbage\n" + common + "\n":  Common,
		`{"a":1}`:                    JSON,
		"\n{\n":                      JSON,
		"garbage":                    "",
		"{\n" + common:               JSON,
	} {
		r, err := NewReader(Config{})
		if err != nil {
			t.Fatal(err)
		}
		for range r.Lines(strings.NewReader(text)) {
		}
		if got := r.Format; got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
