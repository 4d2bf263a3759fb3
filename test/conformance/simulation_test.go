package conformance

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/go-tokenbucket/ratelimit/internal/test/testbuild"
)

// simulationPage returns the page that the command writes about a log.
func simulationPage(t *testing.T, log, policies string) []byte {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"access.log": log, "limits.yaml": policies} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(built(t, "cmd/ratelimit"), "simulate", "-policies", "limits.yaml", "-extra", "X-Key", "-html", "report.html", "access.log")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "no request could be read") {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile(filepath.Join(folder, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// programs are those that were built, by folder.
var programs sync.Map

// built returns a program of the root module, which all tests share.
func built(t *testing.T, folder string) string {
	t.Helper()
	build, _ := programs.LoadOrStore(folder, sync.OnceValues(func() (string, error) {
		into, err := os.MkdirTemp("", "ratelimit-test-")
		if err != nil {
			return "", err
		}
		cmd := exec.Command("go", slices.Concat([]string{"build", "-o", into + "/"}, testbuild.Flags(), []string{"./" + folder})...)
		cmd.Dir = "../.."
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return filepath.Join(into, filepath.Base(folder)), err
	}))
	program, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

const simulatedPolicies = `
version: 1
policies:
  - name: api
    key: remote_ip
    limit: 60/1m burst 10
  - name: search
    on: [GET /search]
    key: {header: X-Key}
    limit: 1/1h burst 2
    shadow: true
    optional: true
`

// simulatedPage is that of the log of cmd/ratelimit/testdata/makelog.
func simulatedPage(t *testing.T) []byte {
	t.Helper()
	log, err := exec.Command(built(t, "cmd/ratelimit/testdata/makelog"), "-lines", "50000").Output()
	if err != nil {
		t.Fatal(err)
	}
	return simulationPage(t, strings.ReplaceAll(string(log), "\n", " \"-\"\n")+keyLines("k", 5), simulatedPolicies)
}

// keyLines are lines of a client with a key.
func keyLines(key string, n int) string {
	line := fmt.Sprintf(`192.0.2.1 - - [24/May/2026:12:00:00 +0000] "GET /search HTTP/1.1" 200 5 "-" "-" %s`, logged(key))
	return strings.Repeat(line+"\n", n)
}

// logged quotes a field as nginx does.
func logged(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02X`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// openFile opens a page from a file.
func openFile(t *testing.T, browser context.Context, page []byte) *tab {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "report.html"), page, 0o600); err != nil {
		t.Fatal(err)
	}
	b := newTab(t, browser, "file://"+filepath.ToSlash(folder))
	b.open("/report.html")
	return b
}

func TestTheReportOfASimulationInABrowser(t *testing.T) {
	browser := startBrowser(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"nothing is loaded":                testReportLoadsNothing,
		"its policy is in force":           testReportPolicy,
		"widths, colors and contrast":      testReportLayout,
		"what assistive technology sees":   testReportNames,
		"on paper, the tables are open":    testReportPrinted,
		"hostile texts":                    testReportHostile,
		"without a policy, without a line": testReportEmpty,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

func (b *tab) checkNoScript() {
	b.Helper()
	if found := eval[[]string](b, `[...document.querySelectorAll("*")].filter((e) => e.matches("script, iframe, object, embed, form, img, style ~ style, [style]") || e.getAttributeNames().some((n) => n.startsWith("on"))).map((e) => e.outerHTML.slice(0, 100))`); len(found) > 0 {
		b.Errorf("the page has %q", found)
	}
	if loaded := eval[[]string](b, `performance.getEntriesByType("resource").map((r) => r.name)`); len(loaded) > 0 {
		b.Errorf("the page loads %q", loaded)
	}
}

func testReportLoadsNothing(t *testing.T, browser context.Context) {
	page := simulatedPage(t)
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	}))
	defer server.Close()
	overHTTP := newTab(t, browser, server.URL)
	overHTTP.open("/report.html")
	for _, b := range []*tab{overHTTP, openFile(t, browser, page)} {
		b.checkNoScript()
		if text := b.text(); !strings.Contains(text, "Denies 2,021 of ") || !strings.Contains(text, "What this cannot know") {
			t.Errorf("the page says %s", text)
		}
		if styled := eval[string](b, `getComputedStyle(document.querySelector(".card")).borderTopLeftRadius`); styled == "0px" {
			t.Error("the page has no style")
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests for one page", n)
	}
}

// What a key could bring into the page would not run, and would load nothing.
func testReportPolicy(t *testing.T, browser context.Context) {
	var requests atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer other.Close()
	b := openFile(t, browser, simulatedPage(t))
	b.expect("a request to " + other.URL) // which is not sent
	b.expect("security policy violation")
	b.expect("Content Security Policy")
	eval[any](b, `void (() => {
		const script = document.createElement("script");
		script.textContent = "hacked = 1";
		document.body.append(script);
		document.body.insertAdjacentHTML("beforeend", '<style>h1 { color: rgb(1, 2, 3) }</style><p id="styled" style="color: rgb(1, 2, 3)">x</p><img><form><button>x</button></form>');
		document.querySelector("form").action = document.querySelector("img").src = %s;
		document.querySelector("form").submit();
	})()`, other.URL+"/x")
	b.wait(`document.querySelector("img").complete`)
	if eval[bool](b, `"hacked" in window || [...document.querySelectorAll("h1, #styled")].some((e) => getComputedStyle(e).color === "rgb(1, 2, 3)")`) {
		t.Error("the policy of the page lets a script or a style through")
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("it sends %d requests", n)
	}
}

func testReportLayout(t *testing.T, browser context.Context) {
	b := openFile(t, browser, simulatedPage(t))
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{320, 400, 540, 600, 1000, 1200} {
			b.scheme(scheme)
			b.size(width, 900)
			what := fmt.Sprintf("%s, %d px", scheme, width)
			for _, open := range []bool{false, true} {
				eval[any](b, `void document.querySelectorAll("details").forEach((d) => d.open = %s)`, open)
				b.checkWidth(what)
				b.checkContrast(what)
			}
			eval[any](b, `void document.querySelectorAll("details").forEach((d) => d.open = false)`)
			b.checkPictures(what, 2)
			if width == 400 || width == 1200 {
				b.screenshot(fmt.Sprintf("simulation-%s-%d", scheme, width))
			}
		}
		brightness := eval[float64](b, `(() => { const c = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g); return (+c[0] + +c[1] + +c[2]) / 3; })()`)
		if (scheme == "dark") != (brightness < 128) {
			t.Errorf("%s: the brightness of the background is %v", scheme, brightness)
		}
	}
}

// checkPictures checks that so many pictures show, with a bar each, and that they have enough contrast.
func (b *tab) checkPictures(what string, want int) {
	b.Helper()
	type found struct {
		Pictures int
		Faults   []string
	}
	f := eval[found](b, `(() => {
		const light = (c) => { const [r, g, b] = c.match(/[\d.]+/g).slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const faults = [], pictures = [...document.querySelectorAll("svg.chart")].filter((s) => s.getBoundingClientRect().width > 0);
		for (const svg of pictures) {
			const behind = light(getComputedStyle(svg.closest(".card")).backgroundColor), box = svg.getBoundingClientRect();
			const bars = [...svg.querySelectorAll("rect")];
			if (bars.length == 0) faults.push("no bar");
			for (const bar of bars) {
				const a = light(getComputedStyle(bar).fill), r = bar.getBoundingClientRect();
				if ((Math.max(a, behind) + 0.05) / (Math.min(a, behind) + 0.05) < 3) faults.push("little contrast");
				if (r.left < box.left - 0.5 || r.right > box.right + 0.5 || r.top < box.top - 0.5 || r.bottom > box.bottom + 0.5) faults.push("a bar is outside");
			}
		}
		return { Pictures: pictures.length, Faults: faults };
	})()`)
	if f.Pictures != want || len(f.Faults) > 0 {
		b.Errorf("%s: %d pictures, want %d; %q", what, f.Pictures, want, f.Faults)
	}
}

func testReportNames(t *testing.T, browser context.Context) {
	b := openFile(t, browser, simulatedPage(t))
	eval[any](b, `void document.querySelectorAll("details").forEach((d) => d.open = true)`)
	for _, width := range []int64{400, 1200} {
		b.size(width, 900)
		count := map[string]int{}
		var images []string
		for _, n := range b.accessibleTree() {
			count[n.role]++
			switch n.role {
			case "link", "image", "table", "heading", "region", "DisclosureTriangle", "RootWebArea":
				if n.name == "" {
					t.Errorf("%d px: a %s has no name", width, n.role)
				}
			}
			if n.role == "image" {
				images = append(images, n.name)
			}
		}
		if count["main"] != 1 || count["banner"] != 1 || count["contentinfo"] != 1 || eval[int](b, `document.querySelectorAll("h1").length`) != 1 {
			t.Errorf("%d px: the page has %v", width, count)
		}
		// A table of all, and for policies a table of limits, of bursts, of times, and of clients.
		if want := eval[int](b, `document.querySelectorAll("table").length`); count["table"] != want || want < 6 {
			t.Errorf("%d px: %d tables of %d are known as tables", width, count["table"], want)
		}
		if len(images) != 2 || !strings.HasPrefix(images[0], "Denied requests over time, in parts of ") {
			t.Errorf("%d px: the pictures are %q", width, images)
		}
		if levels := eval[[]int](b, `[...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].map((h) => +h.tagName[1])`); !inSteps(levels) {
			t.Errorf("a level of headings is left out: %v", levels)
		}
	}
	if eval[string](b, `document.documentElement.lang`) != "en" {
		t.Error("the page has no language")
	}
	if twice := eval[[]string](b, `(() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); return ids.filter((id, i) => ids.indexOf(id) !== i); })()`); len(twice) > 0 {
		t.Errorf("ids stand twice: %q", twice)
	}
}

func testReportPrinted(t *testing.T, browser context.Context) {
	b := openFile(t, browser, simulatedPage(t))
	b.scheme("dark")
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	if closed := eval[int](b, `[...document.querySelectorAll("details table")].filter((e) => e.getBoundingClientRect().height < 40 || !e.checkVisibility({ contentVisibilityAuto: true })).length`); closed > 0 {
		t.Errorf("%d tables are not on paper", closed)
	}
	if back := eval[string](b, `getComputedStyle(document.querySelector(".card")).backgroundColor`); back != "rgb(255, 255, 255)" {
		t.Errorf("on paper, the background is %s", back)
	}
}

func testReportHostile(t *testing.T, browser context.Context) {
	folder := t.TempDir()
	b := newTab(t, browser, "file://"+filepath.ToSlash(folder))
	b.size(400, 900)
	for i, text := range []string{
		`<script>hacked=1;alert(1)</script>`, `"><img src=x onerror="hacked=1"><svg onload=hacked=1>`,
		`'-hacked=1-'`, "`${hacked=1}`", `{{.}}</style></title></svg><h1>hacked</h1>`, `]]><!--`, `-->`,
		"javascript:hacked=1", "\u202egnp.exe\u2066", "line\r\n<script>hacked=1</script>", "nul\x00 and not UTF-8 \xff\xfe\x80",
		strings.Repeat("W", 4000), strings.Repeat("<b>", 10<<10), strings.Repeat("日本", 500), "",
	} {
		// Keys, the lines that cannot be read, and the name of a pattern are others' texts. A key of no text is none.
		page := simulationPage(t, keyLines(text+"k", 5)+text+"\n"+keyLines("x", 1), simulatedPolicies)
		if len(page) > 300_000 {
			t.Errorf("%.20q: the page has %d bytes", text, len(page))
		}
		name := fmt.Sprintf("/%d.html", i)
		if err := os.WriteFile(folder+name, page, 0o600); err != nil {
			t.Fatal(err)
		}
		b.open(name)
		eval[any](b, `void document.querySelectorAll("details").forEach((d) => d.open = true)`)
		b.checkNoScript()
		b.checkWidth(fmt.Sprintf("%.20q", text))
		if eval[bool](b, `"hacked" in window || document.querySelectorAll("h1").length !== 1 || document.querySelectorAll("footer").length !== 1`) {
			t.Errorf("%.20q changes the page", text)
		}
		if strings.HasPrefix(text, "<script>") && !strings.Contains(b.text(), text) {
			t.Errorf("%q does not show", text)
		}
	}
}

func testReportEmpty(t *testing.T, browser context.Context) {
	b := openFile(t, browser, simulationPage(t, "", simulatedPolicies))
	b.size(400, 900)
	b.checkWidth("an empty report")
	if text := b.text(); !strings.Contains(text, "No request could be read") {
		t.Errorf("the page says %s", text)
	}
}

// The picture of a report in the guide. RATELIMIT_SIMULATION_PICTURE=../../docs/simulate.png writes it, with
// RATELIMIT_SIMULATION naming the page.
func TestThePictureOfASimulation(t *testing.T) {
	page := simulatedPage(t)
	if name := os.Getenv("RATELIMIT_SIMULATION"); name != "" {
		var err error
		if page, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	b := openFile(t, startBrowser(t), page)
	b.scheme("light")
	b.checkWidth("the report")
	if path := os.Getenv("RATELIMIT_SIMULATION_PICTURE"); path != "" {
		b.picture(path, ".policy .full", 16)
	}
}
