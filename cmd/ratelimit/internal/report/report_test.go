package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"flag"
	"html"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
)

var update = flag.Bool("update", false, "write the files in testdata")

// sample is a day of a shop. Its numbers are made up, and agree with each other.
func sample() *report.Report {
	at := func(h, m, s int) time.Time { return time.Date(2026, 11, 21, h, m, s, 0, time.UTC) }
	api := report.Policy{
		Name: "api", Limit: "60/1m burst 10",
		Requests: 184_302, RequestsDenied: 9411, Clients: 5120, ClientsDenied: 112, AloneRequests: 184_302, AloneClients: 5120,
		FirstDenial: at(0, 2, 11), LastDenial: at(23, 41, 9),
		Worst: []report.Client{
			{Key: "ip:203.0.113.77", Requests: 7210, Denied: 6031, First: at(14, 1, 3), Last: at(15, 10, 44), Longest: 1, Total: 3720},
			{Key: "ip:2001:db8:7:1::/64", Requests: 4120, Denied: 1904, First: at(0, 2, 11), Last: at(23, 41, 9), Longest: 0.98, Total: 1880},
			{Key: "ip:198.51.100.23", Requests: 902, Denied: 311, First: at(9, 30, 0), Last: at(9, 44, 59), Longest: 1, Total: 290.5},
			{Key: "ip:192.0.2.14", Requests: 87, Denied: 3, First: at(11, 3, 9), Last: at(11, 3, 10), Longest: 0.4, Total: 0.9},
		},
		Verdict: &report.Verdict{
			Limit: "60/1m burst 60", Burst: 60, Others: 5118, Typical: 12, Above: 120, Apart: true,
			Outliers: []report.Outlier{{Key: "ip:203.0.113.77", Requests: 7210, Burst: 6041}, {Key: "ip:2001:db8:7:1::/64", Requests: 4120, Burst: 310}},
		},
		Spare: &report.Spare{Share: 0.999, Touched: 5},
	}
	for i := range 24 * 3 {
		wave := 2560 + 1600*math.Sin(float64(i-24)/72*2*math.Pi)
		s := report.Span{From: at(0, 20*i, 0), Requests: int64(wave)}
		switch {
		case i >= 42 && i < 46:
			s.Denied = 1631 - int64(i%3)*40
			s.Requests += s.Denied
		case i%5 == 0:
			s.Denied = int64(i/3)%7 + 2
		}
		api.When = append(api.When, s)
	}
	for i := range 16 {
		limit := ratelimit.Limit{Rate: 60, Per: time.Duration(60 * math.Pow(2, 4-float64(i)/2) * 1e9).Round(time.Second), Burst: int64(math.Ceil(10 * math.Pow(2, float64(i)/2-4)))}
		api.Curve = append(api.Curve, report.Point{
			Limit: limit.String(), PerSecond: 60 / limit.Per.Seconds(), Burst: limit.Burst, Own: i == 8,
			RequestsDenied: int64(9411 * math.Pow(0.74, float64(i-8))), ClientsDenied: int64(112 * math.Pow(0.635, float64(i-8))),
		})
	}
	for i, burst := range []int64{310, 174, 96, 41, 22, 14, 9} {
		limit := ratelimit.Limit{Rate: 60, Per: 8 * time.Minute >> i, Burst: burst}
		api.Spare.Limits = append(api.Spare.Limits, report.SpareLimit{Limit: limit.String(), Burst: burst, Own: i == 3, ClientsDenied: 5})
	}
	return &report.Report{
		Version: report.Version,
		Files:   []string{"access.log.gz"}, Format: "combined", Lines: 184_319, Requests: 184_302,
		Bad: []report.BadLines{
			{Reason: "no request between quotes", Remedy: "leave out lines that are no requests", Lines: 14, Examples: []report.BadLine{
				{File: "access.log.gz", Line: 812, Text: `203.0.113.9 - - [21/Nov/2026:00:41:10 +0000] "\x16\x03\x01" 400 157 "-" "-"`},
			}},
			{Reason: "longer than 1 MiB", Lines: 3, Examples: []report.BadLine{{File: "access.log.gz", Line: 90_112, Text: "203.0.113.9 - - [21/Nov/2026:11:02:55 +0000] \"GET /?q=" + strings.Repeat("A", 120) + "…"}}},
		},
		From: at(0, 0, 0), To: at(23, 59, 58), Resolution: 1,
		Backwards: 212, BackwardsMost: 2, Bytes: 34_120_411, Took: 0.83, Clients: 1_000_000,
		Policies: []report.Policy{api, {
			Name: "login", Limit: "1/15m burst 5", On: "POST /login",
			Requests: 1204, RequestsDenied: 57, Clients: 840, ClientsDenied: 3, NoKey: 2, BadKey: 1, Failed: 1, ClientsBeyond: 3, AloneRequests: 1300, AloneClients: 851,
			Waited: 12, WaitMean: 0.75, WaitLongest: 2.5,
			FirstDenial: at(3, 15, 0), LastDenial: at(3, 19, 59),
			Worst:   []report.Client{{Key: "ip:203.0.113.77", Requests: 61, Denied: 55, First: at(3, 15, 0), Last: at(3, 19, 59), Longest: 900, Total: 4320}},
			When:    []report.Span{{From: at(3, 15, 0), Requests: 70, Denied: 57}},
			Unknown: []string{"Settle failed_logins is simulated with the status of the log, at the time of the line."},
		}, {
			Name: "api-next", Limit: "30/1m burst 2", Shadow: true, Requests: 184_302, Clients: 5120,
		}},
		LeftOut: []string{"members"},
		Unknown: []string{
			"members is left out: it uses tier, which only the program has.",
			"Clients that are denied behave differently afterwards: some go away, some try again. The log has the requests of clients that were not denied.",
			"Requests that a cache or a proxy answered before this server are not in the log.",
		},
	}
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile("testdata/"+name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("testdata/%s differs; go test -run %s -update writes it. Got:\n%s", name, t.Name(), got)
	}
}

func textOf(t *testing.T, r *report.Report, color report.Paint, columns int) string {
	t.Helper()
	var w bytes.Buffer
	if err := r.Text(&w, color, columns); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func jsonOf(t *testing.T, r *report.Report) string {
	t.Helper()
	var w bytes.Buffer
	if err := r.JSON(&w); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func TestText(t *testing.T) {
	for name, columns := range map[string]int{"sample.txt": 100, "sample-60.txt": 60} {
		text := textOf(t, sample(), false, columns)
		golden(t, name, text)
		wantNarrow(t, text, columns)
	}
	text := textOf(t, sample(), false, 100)
	if strings.Contains(text, "\x1b") {
		t.Error("there are escape sequences without colors")
	}
}

// Colors only add to the text.
func TestTextInColor(t *testing.T) {
	text := textOf(t, sample(), true, 100)
	golden(t, "sample-color.txt", text)
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m"} {
		if !strings.Contains(text, code) {
			t.Errorf("no %q", code)
		}
		text = strings.ReplaceAll(text, code, "")
	}
	if text != textOf(t, sample(), false, 100) {
		t.Errorf("without its colors, the text differs:\n%s", text)
	}
}

func TestJSON(t *testing.T) {
	text := jsonOf(t, sample())
	golden(t, "sample.json", text)
	var back report.Report
	if err := json.Unmarshal([]byte(text), &back); err != nil {
		t.Fatal(err)
	}
	want := sample()
	if !reflect.DeepEqual(&back, want) {
		t.Errorf("read again, it differs:\n%+v\n%+v", back, want)
	}
}

// The names of the JSON are stable. Version changes with them.
func TestNamesOfTheJSON(t *testing.T) {
	var names []string
	var add func(t reflect.Type, at string)
	add = func(t reflect.Type, at string) {
		switch t.Kind() {
		case reflect.Slice:
			add(t.Elem(), at+"[]")
		case reflect.Pointer:
			add(t.Elem(), at)
		case reflect.Struct:
			if t == reflect.TypeFor[time.Time]() {
				names = append(names, at+" time")
				return
			}
			for i := range t.NumField() {
				if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" {
					add(t.Field(i).Type, strings.TrimPrefix(at+"."+name, "."))
				}
			}
		default:
			names = append(names, at+" "+t.Kind().String())
		}
	}
	add(reflect.TypeFor[report.Report](), "")
	golden(t, "names.txt", strings.Join(names, "\n")+"\n")
}

func TestAnEmptyReport(t *testing.T) {
	r := &report.Report{Version: 1, Incomplete: true, Policies: []report.Policy{{Name: "api", Limit: "60/1m"}}}
	golden(t, "empty.txt", textOf(t, r, false, 100))
	golden(t, "empty.json", jsonOf(t, r))
}

// fill makes text of every text of a report, as a client may have chosen it.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type() != reflect.TypeFor[time.Time]() {
				fill(v.Field(i), text)
			}
		}
	}
}

var hostileTexts = []string{
	"\x1b[2J\x1b]0;hacked\a", "a\r\nb\x00", "\u202egnp.exe\u2066", "\u009b31m\x7f", "\xff\xfe", "\u2028\u200b\ufeff", "\U000e0001 tag", `back\slash\x1b`,
	strings.Repeat("W", 5000), strings.Repeat("日本", 300), strings.Repeat("word ", 300), strings.Repeat("e\u0301", 200), "",
	`</style><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "{{.}}", "'`${x}`",
}

func TestHostileTexts(t *testing.T) {
	for _, text := range hostileTexts {
		r := sample()
		fill(reflect.ValueOf(r).Elem(), text)
		for _, columns := range []int{40, 100, 250} {
			got := withoutColors(textOf(t, r, columns == 100, columns))
			wantPrintable(t, got)
			wantNarrow(t, got, columns)
		}
		got := jsonOf(t, r)
		wantPrintable(t, got)
		var back report.Report
		if err := json.Unmarshal([]byte(got), &back); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(text) && back.Policies[0].Worst[0].Key != text {
			t.Errorf("read again, the key is %q", back.Policies[0].Worst[0].Key)
		}
		page := htmlOf(t, r)
		wantSelfContained(t, page)
		if len(page) > 300_000 {
			t.Errorf("%.20q: the page has %d bytes", text, len(page))
		}
	}
}

// wantNarrow checks that all lines fit into a terminal.
func wantNarrow(t *testing.T, text string, columns int) {
	t.Helper()
	terminal := runewidth.Condition{}
	for line := range strings.Lines(text) {
		if n := terminal.StringWidth(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d of %d columns: %s", n, columns, line)
		}
	}
}

var colors = strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[1;31m", "", "\x1b[1;32m", "", "\x1b[1;33m", "")

func withoutColors(text string) string { return colors.Replace(text) }

func wantPrintable(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Error("not UTF-8")
	}
	for _, r := range text {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("there is %U in\n%s", r, text)
			return
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestTheErrorOfAWriter(t *testing.T) {
	r := sample()
	if err := r.Text(failing{}, false, 100); err != os.ErrClosed {
		t.Errorf("Text returns %v", err)
	}
	if err := r.JSON(failing{}); err != os.ErrClosed {
		t.Errorf("JSON returns %v", err)
	}
	if err := r.HTML(failing{}); err != os.ErrClosed {
		t.Errorf("HTML returns %v", err)
	}
}

func htmlOf(t *testing.T, r *report.Report) string {
	t.Helper()
	var w bytes.Buffer
	if err := r.HTML(&w); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func TestHTML(t *testing.T) {
	page := htmlOf(t, sample())
	golden(t, "sample.html", page)
	wantSelfContained(t, page)

	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)
	sum := sha256.Sum256([]byte(style[1]))
	if want := html.EscapeString("style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"); !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), want) {
		t.Errorf("the page should have %s", want)
	}
}

// wantSelfContained checks that a page closes all elements, has no script, and names no address.
func wantSelfContained(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, page)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if slices.Contains([]string{"script", "img", "iframe", "object", "embed", "form", "base", "image", "use", "foreignObject"}, start.Name.Local) {
			t.Errorf("the page has a %s", start.Name.Local)
		}
		for _, a := range start.Attr {
			switch name := a.Name.Local; {
			case strings.HasPrefix(name, "on"), name == "style", name == "src", name == "href" && !strings.HasPrefix(a.Value, "#") && a.Value != "data:,":
				t.Errorf("a %s has %s=%q", start.Name.Local, name, a.Value)
			}
		}
	}
}

// shake changes the numbers and times of a report, and leaves parts of it out.
func shake(v reflect.Value, random *rand.Rand) {
	switch v.Kind() {
	case reflect.Int64:
		v.SetInt(random.Int64N(1 << random.IntN(50)))
	case reflect.Float64:
		v.SetFloat(math.Exp(random.NormFloat64() * 12))
	case reflect.Bool:
		v.SetBool(random.IntN(3) == 0)
	case reflect.Pointer:
		if random.IntN(4) == 0 {
			v.SetZero()
		}
		if !v.IsNil() {
			shake(v.Elem(), random)
		}
	case reflect.Slice:
		if n := v.Len(); n > 0 && random.IntN(3) == 0 {
			v.SetLen(random.IntN(n))
		}
		for i := range v.Len() {
			shake(v.Index(i), random)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			if random.IntN(5) == 0 {
				v.Set(reflect.ValueOf(time.Unix(random.Int64N(1<<random.IntN(37)), 0).In(time.FixedZone("", 3600*random.IntN(12)))))
			}
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				shake(v.Field(i), random)
			}
		}
	}
}
