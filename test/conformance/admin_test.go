package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// An adminSite is a service with limits and the page that shows them.
type adminSite struct {
	*testing.T
	limiter *ratelimit.Limiter
	server  *httptest.Server
	base    string
	access  admin.Access
}

var (
	slow    = ratelimit.Policy{Name: "slow", Key: ratelimit.Header("X-Key"), Limit: ratelimit.PerSecond(2).WithBurst(40)}
	logins  = ratelimit.Policy{Name: "logins", Key: ratelimit.Header("X-Key"), Limit: ratelimit.PerHour(5), LockFor: 15 * time.Minute}
	proxied = ratelimit.Policy{Name: "proxied", Limit: ratelimit.PerHour(2), Key: ratelimit.ClientIP(ratelimit.IPConfig{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: "X-Forwarded-For",
	})}
	shadow = ratelimit.Policy{Name: "shadow", Key: ratelimit.Header("X-Key"), Limit: ratelimit.PerHour(2), Shadow: true}
)

func newAdminSite(t *testing.T, cfg admin.Config) *adminSite {
	t.Helper()
	buckets := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { buckets.Close() })
	cfg.Counts, cfg.Top = observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	cfg.Logger = slog.New(slog.DiscardHandler)
	s := &adminSite{T: t, access: admin.Change}
	s.limiter = ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store:    buckets,
		Policies: []ratelimit.Policy{slow, logins, shadow},
		Observe:  observe.Join(cfg.Counts.Observe, cfg.Top.Observe),
		Logger:   slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(func() { s.limiter.Close() })
	var err error
	if cfg.Overrides, err = override.Watch(t.Context(), s.limiter, buckets, override.Config{Logger: cfg.Logger}); err != nil {
		t.Fatal(err)
	}
	service := http.NewServeMux() // which the page explains
	service.Handle("GET /members/{id}", s.limiter.Limit(proxied)(http.NotFoundHandler()))
	service.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/members/1", nil))
	mux := http.NewServeMux()
	mux.Handle("/", service) // which also keeps its limiter mounted
	mux.Handle("/admin/", http.StripPrefix("/admin", admin.Handler(s.limiter, func(*http.Request) (string, admin.Access) { return "ann", s.access }, cfg)))
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	s.base = s.server.URL
	return s
}

// take takes tokens of a key, and reports whether it got them.
func (s *adminSite) take(p ratelimit.Policy, key string, n int64) bool {
	s.Helper()
	r, err := s.limiter.Take(context.Background(), p, key, n)
	if err != nil {
		s.Fatal(err)
	}
	return r.Allowed
}

func (s *adminSite) peek(p ratelimit.Policy, key string) ratelimit.Bucket {
	s.Helper()
	r, err := s.limiter.Peek(context.Background(), p, key)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// bucketOf selects an element in the part of the page about the bucket of a policy.
func bucketOf(policy ratelimit.Policy, selector string) string {
	return fmt.Sprintf(`[data-bucket=%q] %s`, policy.Name, selector)
}

// button selects a button by the action that it sends.
func button(policy ratelimit.Policy, action string) string {
	return bucketOf(policy, fmt.Sprintf(`form[action$="key/%s"] button`, action))
}

func TestAdminPageInABrowser(t *testing.T) {
	browser := startBrowser(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"a bucket is shown as it was read":   testBucketsAsRead,
		"the numbers of a chart":             testChartNumbers,
		"reset, refund, block and unblock":   testClicks,
		"a block of an unknown kind":         testUnknownKind,
		"changes over plain HTTP":            testPlainHTTP,
		"a password in the address":          testPasswordInAddress,
		"a lock":                             testLock,
		"hostile keys":                       testHostileKeys,
		"the first page is kept up to date":  testOverviewIsLive,
		"a service that ends":                testServiceEnds,
		"a login that ends":                  testLoginEnds,
		"without scripts":                    testWithoutScripts,
		"a user who may only look":           testViewOnly,
		"widths, colors and contrast":        testLayout,
		"by keyboard":                        testKeyboard,
		"what assistive technology is told":  testAccessibleNames,
		"a focused field is left in its way": testTypingGoesOn,
		"a pasted request is explained":      testExplainForm,
		"limits are changed":                 testLimitsForm,
	} {
		t.Run(name, func(t *testing.T) { test(t, browser) })
	}
}

// The page shows what the store holds, and does not guess what it will hold.
func testBucketsAsRead(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(slow, "member:5", 30)
	b := newTab(t, browser, s.base)
	b.open("/admin/key?key=member:5")
	begin := time.Now()
	read := `document.querySelector(` + "`" + bucketOf(slow, ".state") + "`" + `).textContent`
	text := eval[string](b, read)
	after := s.peek(slow, "member:5").Remaining
	var shown float64
	if fmt.Sscan(text, &shown); shown < 10 || shown > float64(after+1) || !strings.Contains(text, " read at ") {
		t.Errorf("%v after 10 tokens were there, the page says %q, and %d are there", time.Since(begin), text, after)
	}
	s.take(slow, "member:5", after)
	b.wait(read + `.match(/[\d.]+/)[0] < 8`) // it also shows what others take
	eval[any](b, `void (window.fetch = () => new Promise(() => {}))`)
	time.Sleep(100 * time.Millisecond) // for an answer on its way
	if changed := eval[bool](b, `new Promise((done) => { const read = () => `+read+`, was = read(); setTimeout(() => done(read() !== was), 1000); })`); changed {
		t.Errorf("without an answer of the store the page goes on to say %q", eval[string](b, read))
	}
}

// Each number of a chart shows below the pointer, and by the arrow keys, and is in a table.
func testChartNumbers(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	for range 50 {
		s.take(slow, "member:17", 1)
	}
	b := newTab(t, browser, s.base)
	b.open("/admin/top?policy=slow")
	b.wait(`!document.querySelector("#chart .legend").textContent.startsWith("allowed 0 ")`) // the step is over
	for name, move := range map[string]func(){
		"pointer": func() {
			at := eval[[]float64](b, `(() => { const r = document.querySelector("#chart .plot").getBoundingClientRect(); return [r.left + 1, r.top + 20]; })()`)
			command(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: chromedp.MouseMoved, X: at[0], Y: at[1]})
		},
		"keys": func() { b.do(chromedp.Focus(chromedp.CSS("#chart-at")), chromedp.KeyEvent(kb.Home)) },
	} {
		b.open("/admin/top?policy=slow")
		move()
		b.wait(`document.querySelector("#chart .legend").textContent.includes([...document.querySelectorAll("#chart tbody time")].at(-1).textContent)`)
		if text := eval[string](b, `document.querySelector("#chart-at").getAttribute("aria-valuetext")`); !strings.HasSuffix(text, ": allowed 0, denied 0 per second") {
			t.Errorf("%s: the slider says %q", name, text)
		}
		if !eval[bool](b, `(() => { const c = document.querySelector("#chart .cursor"), r = c.getBoundingClientRect(), p = document.querySelector("#chart .plot").getBoundingClientRect(); return getComputedStyle(c).visibility === "visible" && r.height > 100 && Math.abs(r.left - p.left) < 20; })()`) {
			t.Errorf("%s: no line marks the time", name)
		}
	}
	b.screenshot("chart")

	// A longer range, and the table, are there without scripts.
	none := newTab(t, browser, s.base)
	none.withoutScripts()
	none.open("/admin/top?policy=slow")
	none.follow(`#chart .reaches a[href$="range=6h"]`)
	none.wait(`document.querySelector("#chart .reaches strong")?.textContent === "6 h"`)
	if text := none.text(); !strings.Contains(text, "per second at ") {
		t.Errorf("no values without scripts: %s", text)
	}
	none.click("#chart summary")
	if !eval[bool](none, `document.querySelectorAll("#chart tbody tr").length > 0 && document.querySelector("#chart tbody").checkVisibility() && !document.querySelector("#chart-at").checkVisibility()`) {
		t.Error("without scripts there is no table, or a slider that does nothing")
	}

	b.click("#chart summary")
	eval[bool](b, `new Promise((done) => document.addEventListener("updated", () => done(true), { once: true }))`)
	if !eval[bool](b, `[...document.querySelectorAll("#chart tbody tr")].some((row) => row.checkVisibility() && /allowed|\t[1-9]/.test(row.innerText))`) {
		t.Errorf("an update closes the table, or it says %s", b.text())
	}
}

func testClicks(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	const key = "member:5"
	s.take(logins, key, 4)
	b := newTab(t, browser, s.base)
	b.open("/admin/key?key=" + key)
	b.wait(`document.querySelector(%s).textContent.startsWith("1 of 5")`, bucketOf(logins, ".level"))

	b.do(chromedp.SetValue(chromedp.CSS(bucketOf(logins, "input[name=n]")), "2"))
	b.follow(button(logins, "refund"))
	b.wait(`document.querySelector(%s)?.textContent.startsWith("3 of 5")`, bucketOf(logins, ".level"))
	if r := s.peek(logins, key); r.Remaining != 3 {
		t.Errorf("a refund of 2 leaves %d tokens, want 3", r.Remaining)
	}

	b.follow(button(logins, "reset"))
	b.wait(`document.querySelector(%s)?.textContent.startsWith("5 of 5")`, bucketOf(logins, ".level"))
	if r := s.peek(logins, key); r.Used || r.Remaining != 5 {
		t.Errorf("after a reset there are %d tokens", r.Remaining)
	}

	b.do(chromedp.SetValue(chromedp.CSS(bucketOf(slow, "input[name=for]")), "2h"))
	b.follow(button(slow, "block"))
	b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="slow"]`)
	if r := s.peek(slow, key); !r.Blocked || r.RetryAfter < 119*time.Minute || r.RetryAfter > 2*time.Hour {
		t.Errorf("after a block of 2 h: %+v", r)
	}
	if s.take(slow, key, 1) || !s.take(logins, key, 1) || !s.take(slow, "member:6", 1) {
		t.Error("a block of one bucket denies another, or not that one")
	}
	b.screenshot("key-blocked")

	// It is in the list of blocks, with a button that ends it.
	b.open("/admin/")
	b.wait(`document.querySelector("#block-list")?.textContent.includes("member:5") && document.querySelector("#block-list").textContent.includes("ann")`)
	b.follow(`#block-list form[action$="key/unblock"] button`)
	b.wait(`document.querySelector(%s)?.dataset.state === "full"`, `[data-bucket="slow"]`)
	if !s.take(slow, key, 40) {
		t.Error("after an unblock the bucket is not what it was")
	}
}

// A block that would block nobody has to be ticked.
func testUnknownKind(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(logins, "ip:192.0.2.1", 1)
	b := newTab(t, browser, s.base)
	b.expect("422")
	b.open("/admin/key?key=203.0.113.66")
	b.do(chromedp.SetValue(chromedp.CSS(bucketOf(logins, "input[name=for]")), "2h"))
	b.follow(button(logins, "block"))
	b.wait(`document.querySelector(".notice.bad")?.textContent.includes("Keys of requests begin with ip:")`)
	if s.peek(logins, "203.0.113.66").Blocked {
		t.Error("it is blocked")
	}
	b.size(400, 900)
	b.checkWidth("a block that was not made")
	b.click(bucketOf(logins, "input[name=force]"))
	b.follow(button(logins, "block"))
	b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="logins"]`)
	if r := s.peek(logins, "203.0.113.66"); r.RetryAfter < 119*time.Minute {
		t.Errorf("blocked for %v", r.RetryAfter)
	}
}

// Where an address is not trustworthy, browsers send no Sec-Fetch-Site, and the page's own forms are known by their Origin.
func testPlainHTTP(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(logins, "member:5", 3)
	b := newTab(t, browser, strings.Replace(s.base, "127.0.0.1", "shop.example", 1))
	b.expect("Cross-Origin-Opener-Policy header has been ignored")
	b.open("/admin/key?key=member:5")
	b.follow(button(logins, "reset"))
	b.wait(`document.querySelector("h1")?.textContent === "Forbidden" || document.querySelector(%s)?.textContent.startsWith("5 of 5")`, bucketOf(logins, ".level"))
	if r := s.peek(logins, "member:5"); r.Used {
		t.Errorf("it is not reset; the page says: %s", b.text())
	}
	s.take(logins, "member:5", 2)
	b.wait(`document.querySelector(%s).textContent.startsWith("3 of 5")`, bucketOf(logins, ".level")) // the script's requests
}

func testPasswordInAddress(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	b := newTab(t, browser, s.base)
	b.base = strings.Replace(s.base, "://", "://ann:password@", 1)
	b.expect("a request to " + s.base) // of the script
	for _, path := range []string{"/admin/", "/admin/key?key=member:5"} {
		b.open(path)
		fetched := eval[bool](b, `new Promise((done) => {
			new MutationObserver(() => done(true)).observe(document.getElementById("as-of"), { subtree: true, characterData: true });
			setTimeout(() => done(false), 10000);
		})`)
		if !fetched {
			t.Errorf("%s is not kept up to date", path)
		}
	}
}

func testLock(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(logins, "member:5", 5)
	b := newTab(t, browser, s.base)
	b.open("/admin/key?key=member:5")
	b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="logins"]`)
	if text := eval[string](b, `document.querySelector(%s).textContent`, bucketOf(logins, ".next")); !strings.Contains(text, "14 min") && !strings.Contains(text, "15 min") {
		t.Errorf("of a bucket that is locked for 15 minutes the page says %q", text)
	}
	b.follow(button(logins, "reset"))
	b.wait(`document.querySelector(%s)?.dataset.state === "full"`, `[data-bucket="logins"]`)
	if !s.take(logins, "member:5", 1) {
		t.Error("a reset leaves the lock")
	}
}

// A key that a client chose shows, and can be blocked. It does nothing to the page.
func testHostileKeys(t *testing.T, browser context.Context) {
	names := ratelimit.Must(observe.NewNames(func(_ context.Context, _, key string) (string, error) { // as hostile as the key
		return "named " + key, nil
	}, observe.NamesConfig{}))
	s := newAdminSite(t, admin.Config{Names: names})
	b := newTab(t, browser, s.base)
	b.size(400, 800)
	for i, key := range []string{
		`<script>hacked=1;alert(1)</script>`,
		`"><img src=x onerror="hacked=1"><svg onload=hacked=1>`,
		`'-hacked=1-'`, "`${hacked=1}`", `{{.}}</style></title><h1>hacked</h1>`,
		`javascript:hacked=1`, `?policy=logins&key=other#fragment%00`, `../../key/reset`,
		"\u202egnp.exe\u2066", "line\r\nSet-Cookie: a=b\r\n\r\n<script>hacked=1</script>",
		"nul\x00 and not UTF-8 \xff\xfe\x80", "\xff", " spaces ", "ip:2001:db8::/64", strings.Repeat("W", 256),
		strings.Repeat("long ", 60), strings.Repeat("W", 4000), strings.Repeat("<b>", 10<<10),
	} {
		for range 7 + 2*i { // more than the one before
			s.take(logins, key, 1)
		}
		s.take(slow, "ip:192.0.2.1", 1)
		time.Sleep(time.Second) // facts are as old as that
		b.open("/admin/")
		b.checkWidth(fmt.Sprintf("the list with %.20q", key))
		link := eval[string](b, `[...document.querySelectorAll("#key-list table tr")][1].querySelector("a")?.href ?? ""`)
		if link == "" {
			if text := eval[string](b, `document.querySelector("#key-list table").innerText`); len(key) <= 256 || !strings.Contains(text, "sha256:") {
				t.Errorf("%.20q has no link in %s", key, text)
			}
			continue
		}
		b.do(chromedp.Navigate(link))
		b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="logins"]`) // locked
		b.checkWidth(fmt.Sprintf("the key %.20q", key))
		b.wait(`document.querySelector("#name").textContent.includes("named ")`)
		b.follow(button(slow, "block"))
		b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="slow"]`)
		if s.take(slow, key, 1) || !s.take(slow, key+"x", 1) {
			t.Errorf("%.20q: the page has blocked another key", key)
		}
		b.follow(button(slow, "unblock"))
		b.wait(`document.querySelector(%s)?.dataset.state === "full"`, `[data-bucket="slow"]`)
		b.follow(button(logins, "reset"))
		b.wait(`document.querySelector(%s)?.dataset.state === "full"`, `[data-bucket="logins"]`)
		if r := s.peek(logins, key); r.Used {
			t.Errorf("%.20q: the page has reset another key", key)
		}
		if i < 2 { // also what a script fetches
			s.take(logins, key, 1)
			b.wait(`document.querySelector(%s).textContent.startsWith("4")`, bucketOf(logins, ".level"))
		}
		if hacked := eval[bool](b, `"hacked" in window || document.querySelectorAll("h1").length !== 1 || document.querySelectorAll("script").length !== 2`); hacked {
			t.Errorf("%.20q changes the page: %s", key, eval[string](b, `document.documentElement.outerHTML`))
		}
	}
}

// checkWidth checks that the page does not scroll sideways, and that no text runs out of its box.
func (b *tab) checkWidth(what string) {
	b.Helper()
	if wide := eval[[]string](b, `[...document.querySelectorAll("*")].filter((e) => {
		const r = e.getBoundingClientRect();
		return r.width > 0 && r.right > innerWidth + 0.5 && !e.closest(".scroll, svg, .hidden, .skip");
	}).map((e) => e.outerHTML.slice(0, 150))`); len(wide) > 0 || eval[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
		b.Errorf("%s scrolls sideways at %v px, for %q", what, eval[int](b, `innerWidth`), wide)
	}
}

func testOverviewIsLive(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	b := newTab(t, browser, s.base)
	b.open("/admin/")
	b.wait(`document.body.innerText.includes("All is well.")`)
	for range 100 {
		s.take(slow, "member:17", 1)
		s.take(shadow, "member:18", 1)
	}
	b.wait(`[...document.querySelectorAll("#key-list table tr")].some((r) => r.textContent.includes("member:17") && r.textContent.includes("slow"))`)
	b.wait(`[...document.querySelectorAll("#key-list table tr")].some((r) => r.textContent.includes("member:18") && r.textContent.includes("shadow"))`)
	b.wait(`document.querySelectorAll(".plot polyline").length > 0`)

	// Rows change their places, and the focus stays with its key. What was opened stays open. Nothing is announced.
	eval[any](b, `(() => {
		document.querySelector('[aria-label="Block member:17"]').focus();
		document.querySelector("#engine").open = true;
		window.said = 0;
		new MutationObserver(() => said++).observe(document.getElementById("live"), { subtree: true, childList: true, characterData: true });
	})()`)
	for range 200 {
		s.take(slow, "member:19", 1)
	}
	b.wait(`document.querySelectorAll("#key-list table tr")[1].textContent.includes("member:19")`)
	if kept := eval[string](b, `document.activeElement.getAttribute("aria-label") + " of " + document.activeElement.closest("tr").dataset.row + ", open " + document.querySelector("#engine").open + ", said " + said`); kept != "Block member:17 of slow member:17, open true, said 0" {
		t.Errorf("after an update: %s", kept)
	}
	b.leave(chromedp.KeyEvent(kb.Enter))
	b.wait(`document.querySelector("h1")?.textContent.includes("member:17") && location.search.includes("policy=slow")`)
}

func testServiceEnds(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(slow, "member:5", 30)
	b := newTab(t, browser, s.base)
	b.expect("net::ERR_CONNECTION_REFUSED")
	b.expect("net::ERR_CONNECTION_RESET")
	b.expect("net::ERR_EMPTY_RESPONSE")
	b.open("/admin/key?key=member:5")
	s.server.CloseClientConnections()
	s.server.Close()
	b.wait(`document.getElementById("live").textContent.includes("stopped")`)
}

// An authentication in front of the page may answer with its login, and not with an error.
func testLoginEnds(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	b := newTab(t, browser, s.base)
	b.open("/admin/")
	eval[any](b, `void (window.fetch = async () => new Response("<h1>Sign in</h1>", { headers: { "Content-Type": "text/html" } }))`)
	b.wait(`document.getElementById("live").textContent.includes("stopped")`)
}

func testWithoutScripts(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(logins, "member:5", 3)
	b := newTab(t, browser, s.base)
	b.withoutScripts()
	b.open("/admin/")
	if text := b.text(); !strings.Contains(text, "Reload the page") || !strings.Contains(text, "member:5") || !strings.Contains(text, "logins") {
		t.Errorf("the page says %s", text)
	}
	b.do(chromedp.SendKeys(chromedp.CSS("#search"), "member:5"))
	b.follow("form[role=search] button")
	b.wait(`document.querySelector(%s)?.textContent.startsWith("2 of 5")`, bucketOf(logins, ".level"))
	b.follow(button(logins, "reset"))
	b.wait(`document.querySelector(%s)?.textContent.startsWith("5 of 5")`, bucketOf(logins, ".level"))
	b.follow(button(logins, "block"))
	b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="logins"]`)
	if !s.peek(logins, "member:5").Blocked {
		t.Error("it is not blocked")
	}
}

func testViewOnly(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.access = admin.View
	s.take(logins, "member:5", 3)
	b := newTab(t, browser, s.base)
	b.open("/admin/key?key=member:5")
	b.wait(`document.querySelector(%s)?.textContent.startsWith("2 of 5")`, bucketOf(logins, ".level"))
	if n := eval[int](b, `document.querySelectorAll("form:not([role=search])").length`); n != 0 {
		t.Errorf("%d forms to change something", n)
	}
}

// adminPages are the addresses that the tests of the layout look at, by name.
var adminPages = map[string]string{"overview": "/admin/", "policy": "/admin/top?policy=slow", "key": "/admin/key?key=member:5", "problem": "/admin/none", "explain": "/admin/explain", "overrides": "/admin/overrides"}

func (s *adminSite) traffic() {
	for i := range 300 {
		s.take(slow, fmt.Sprint("member:", i%17), 1+int64(i%5))
		s.take(slow, "ip:2001:db8:1234:5678::/64", 1)
		s.take(logins, fmt.Sprint("user:", i%7, "@example.com"), 1)
		s.take(shadow, fmt.Sprint("ip:192.0.2.", i%50), 1)
	}
	s.take(logins, "member:5", 3)
	if _, err := s.limiter.Block(context.Background(), shadow, "member:5", time.Hour, ""); err != nil {
		s.Fatal(err)
	}
}

func testLayout(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{Title: "Shop"})
	s.traffic()
	b := newTab(t, browser, s.base)
	b.expect("404")
	for _, scheme := range []string{"light", "dark"} {
		backgrounds := map[string]string{"light": "255", "dark": "0"}
		for _, width := range []int64{320, 400, 600, 800, 1200, 2000} {
			b.scheme(scheme)
			b.size(width, 900)
			for name, address := range adminPages {
				b.open(address)
				b.checkWidth(name)
				b.checkContrast(fmt.Sprintf("%s, %s, %d px", name, scheme, width))
				if width == 400 || width == 1200 {
					b.screenshot(fmt.Sprintf("%s-%s-%d", name, scheme, width))
				}
			}
			brightness := eval[float64](b, `(() => { const c = getComputedStyle(document.documentElement).backgroundColor.match(/[\d.]+/g), d = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g); const of = d[3] === "0" ? c : d; return (+of[0] + +of[1] + +of[2]) / 3; })()`)
			if (scheme == "dark") != (brightness < 128) {
				t.Errorf("%s: the brightness of the background is %v, want near %s", scheme, brightness, backgrounds[scheme])
			}
		}
	}
}

// checkContrast checks that texts have the contrast that WCAG asks for at its level AA.
func (b *tab) checkContrast(what string) {
	b.Helper()
	for _, low := range eval[[]string](b, `(() => {
		const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
		const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
		const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const background = (e) => {
			const layers = [];
			for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
			return layers.reverse().reduce((under, layer) => over(layer, under), matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1]);
		};
		const low = new Set();
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (texts.nextNode()) {
			const text = texts.currentNode.textContent.trim(), e = texts.currentNode.parentElement, style = getComputedStyle(e);
			if (!text || !e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || e.closest("svg, .skip, .hidden, noscript, datalist, [disabled]")) continue;
			const behind = background(e);
			let opacity = 1;
			for (let n = e; n; n = n.parentElement) opacity *= Number(getComputedStyle(n).opacity);
			const color = parse(style.color); color[3] *= opacity;
			const a = light(over(color, behind)), b = light(behind), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700;
			if (ratio < (large ? 3 : 4.5)) low.add(ratio.toFixed(2) + ": " + e.tagName + "." + e.className + " " + text.slice(0, 30));
		}
		return [...low];
	})()`) {
		b.Errorf("%s: the contrast is %s", what, low)
	}
}

// The Tab key reaches everything that the mouse can click, in the order of the page, and shows where it is.
func testKeyboard(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.traffic()
	b := newTab(t, browser, s.base)
	for _, address := range []string{"/admin/explain", "/admin/overrides", "/admin/", "/admin/key?key=member:5"} {
		b.open(address)
		want := eval[[]string](b, `(() => {
			window.nameOf = (e) => e.tagName + " " + (e.getAttribute("action") || e.closest("form")?.getAttribute("action") || "") + " " + (e.name || e.textContent.trim() || e.getAttribute("aria-label")) + " " + [...document.querySelectorAll("*")].indexOf(e);
			return [...document.querySelectorAll("a[href], button:not([disabled]), input:not([type=hidden]), textarea, summary, [tabindex='0']")].filter((e) => e.checkVisibility()).map(nameOf);
		})()`)
		var got []string
		for range want {
			b.do(chromedp.KeyEvent(kb.Tab))
			got = append(got, eval[string](b, `nameOf(document.activeElement)`))
			if seen := eval[bool](b, `(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect(); return e.matches(":focus-visible") && (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0 || s.boxShadow !== "none") && r.width > 0 && r.top < innerHeight && r.bottom > 0; })()`); !seen {
				t.Errorf("%s: the focus does not show at %s", address, got[len(got)-1])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: Tab goes to\n%s\nwant\n%s", address, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	// Block by keyboard alone.
	b.do(chromedp.Focus(chromedp.CSS(bucketOf(slow, "input[name=for]"))))
	b.leave(chromedp.KeyEvent(kb.Enter))
	b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="slow"]`)
	if r := s.peek(slow, "member:5"); !r.Blocked {
		t.Error("it is not blocked")
	}
}

func testAccessibleNames(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.traffic()
	b := newTab(t, browser, s.base)
	b.expect("404")
	for name, address := range adminPages {
		b.open(address)
		count := map[string]int{}
		buttons := map[string]bool{}
		for _, n := range b.accessibleTree() {
			count[n.role]++
			switch n.role {
			case "button", "link", "textbox", "spinbutton", "searchbox", "combobox", "checkbox", "meter", "image", "table", "heading", "group", "region", "RootWebArea":
				if n.name == "" {
					t.Errorf("%s: a %s has no name", name, n.role)
				}
			}
			buttons[n.name] = buttons[n.name] || n.role == "button"
		}
		if count["main"] != 1 || count["banner"] != 1 || count["contentinfo"] != 1 || eval[int](b, `document.querySelectorAll("h1").length`) != 1 {
			t.Errorf("%s: the page has %v", name, count)
		}
		if levels := eval[[]int](b, `[...document.querySelectorAll("h1,h2,h3,h4,h5,h6")].map((h) => +h.tagName[1])`); !inSteps(levels) {
			t.Errorf("%s: a level of headings is left out: %v", name, levels)
		}
		if eval[string](b, `document.documentElement.lang`) != "en" {
			t.Errorf("%s: the page has no language", name)
		}
		if live := eval[int](b, `[...document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log]")].length`); live != map[string]int{"overview": 1, "policy": 1, "key": 1}[name] {
			t.Errorf("%s: %d parts are read aloud when they change", name, live)
		}
		if name == "key" {
			if count["meter"] != 4 || !buttons["Unblock"] || !buttons["Block"] || !buttons["Refund"] || !buttons["Reset"] && !buttons["Reset and unblock"] {
				t.Errorf("%s: the page has %v and the buttons %v", name, count, buttons)
			}
			if described := eval[bool](b, `[...document.querySelectorAll("main button")].every((e) => document.getElementById(e.getAttribute("aria-describedby"))?.textContent)`); !described {
				t.Errorf("%s: a button does not say of which bucket it is", name)
			}
		}
	}
}

// inSteps reports whether no level of headings is left out.
func inSteps(levels []int) bool {
	last := 0
	for _, level := range levels {
		if level > last+1 {
			return false
		}
		last = level
	}
	return true
}

// The page is fetched again while somebody fills a form.
func testTypingGoesOn(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.take(logins, "member:5", 3)
	b := newTab(t, browser, s.base)
	b.open("/admin/key?key=member:5")
	field := bucketOf(logins, "input[name=for]")
	eval[any](b, `document.querySelector(%s).select()`, field)
	b.do(chromedp.KeyEvent("3d"))
	s.take(logins, "member:5", 1)
	b.wait(`document.querySelector(%s).textContent.startsWith("1 of 5")`, bucketOf(logins, ".level"))
	if text := eval[string](b, `document.activeElement === document.querySelector(%s) ? document.activeElement.value : "the focus is lost"`, field); text != "3d" {
		t.Errorf("after an update: %q", text)
	}
	b.leave(chromedp.KeyEvent(kb.Enter))
	b.wait(`document.querySelector(%s)?.dataset.state === "blocked"`, `[data-bucket="logins"]`)
	if r := s.peek(logins, "member:5"); r.RetryAfter < 71*time.Hour {
		t.Errorf("blocked for %v", r.RetryAfter)
	}

	// A form stays that of its policy when there are others.
	eval[any](b, `document.querySelector(%s).select()`, bucketOf(slow, "input[name=for]"))
	if err := s.limiter.Reload(shadow, logins, slow); err != nil {
		t.Fatal(err)
	}
	eval[bool](b, `new Promise((done) => new MutationObserver(() => done(true)).observe(document.getElementById("as-of"), { subtree: true, characterData: true }))`)
	b.leave(chromedp.KeyEvent("2d" + kb.Enter))
	b.wait(`document.querySelectorAll('[data-state="blocked"]').length === 2`)
	if !s.peek(slow, "member:5").Blocked || s.peek(shadow, "member:5").Blocked {
		t.Error("another policy is blocked")
	}
}

// A command that Chrome has copied is explained, also without scripts, and nothing is taken.
func testExplainForm(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	s.access = admin.View
	b := newTab(t, browser, s.base)
	b.withoutScripts()
	b.open("/admin/")
	b.follow(`nav a[href$="explain"]`)
	b.wait(`document.querySelector("#curl")`)
	b.do(chromedp.SetValue(chromedp.CSS("#peer"), "10.0.0.1"), chromedp.SetValue(chromedp.CSS("#route"), "GET /members/{id}"))
	b.do(chromedp.SetValue(chromedp.CSS("#curl"), `curl 'https://shop.example/members/5?page=2' \
  -H 'accept: application/json' \
  -H 'accept-language: en-US,en;q=0.9' \
  -b 'session=abc; theme=dark' \
  -H 'sec-ch-ua: "Chromium";v="140", "Not=A?Brand";v="24"' \
  -H $'x-forwarded-for: 198.51.100.66, 203.0.113.7\u002c 10.0.0.8'`))
	b.follow("main form button")
	b.wait(`document.querySelector("#explanation")`)
	text := b.text()
	for _, want := range []string{
		"It would reach the handler.", "GET /members/{id}", "proxied", "ip:203.0.113.7", "2 tokens left, full",
		`entry 2, "203.0.113.7": the client`, `entry 3, "198.51.100.66": not believed`, "X-Ratelimit-Remaining: 1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for id, want := range map[string]string{"url": "https://shop.example/members/5?page=2", "method": "GET", "peer": "10.0.0.1", "route": "GET /members/{id}", "curl": ""} {
		if got := eval[string](b, `document.getElementById(%s).value`, id); got != want {
			t.Errorf("the field %s has %q, want %q", id, got, want)
		}
	}
	if got := eval[string](b, `document.getElementById("headers").value`); !strings.Contains(got, "Cookie: session=abc; theme=dark") || !strings.Contains(got, "X-Forwarded-For: 198.51.100.66, 203.0.113.7, 10.0.0.8") {
		t.Errorf("the headers are %s", got)
	}
	if r := s.peek(proxied, "ip:203.0.113.7"); r.Remaining != 2 {
		t.Errorf("%d tokens are left, want 2", r.Remaining)
	}
	b.screenshot("explained")
	for _, width := range []int64{320, 1200} {
		b.size(width, 900)
		b.checkWidth("explained")
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
		}
	}
}

func testLimitsForm(t *testing.T, browser context.Context) {
	s := newAdminSite(t, admin.Config{})
	limitOf := func(name string) string {
		for _, p := range s.limiter.Policies() {
			if p.Name == name {
				return p.Limit.String()
			}
		}
		return ""
	}
	b := newTab(t, browser, s.base)
	b.withoutScripts()
	b.open("/admin/")
	b.follow(`nav a[href$="overrides"]`)
	form := func(policy ratelimit.Policy, selector string) string {
		return fmt.Sprintf("form:has(input[name=policy][value=%q]):has(input[name=limit]) %s", policy.Name, selector)
	}
	b.wait(`document.querySelector(%s)`, form(logins, "button"))
	b.do(chromedp.SetValue(chromedp.CSS(form(logins, "input[name=limit]")), "20/1h"))
	b.do(chromedp.SetValue(chromedp.CSS(form(logins, "input[name=why]")), "a sale"))
	b.follow(form(logins, "button"))
	b.wait(`document.querySelector(".notice.good")`)
	if text := b.text(); limitOf("logins") != "20/1h" || !strings.Contains(text, "a sale") || !strings.Contains(text, "ann") {
		t.Errorf("the limit is %s: %s", limitOf("logins"), text)
	}

	// What goes too far has to be ticked.
	b.expect("422")
	b.do(chromedp.SetValue(chromedp.CSS(form(logins, "input[name=limit]")), "500/1h"))
	b.follow(form(logins, "button"))
	b.wait(`document.querySelector(%s)`, form(logins, "input[name=force]"))
	if text := b.text(); limitOf("logins") != "20/1h" || !strings.Contains(text, "100 times that of the program's 5/1h") {
		t.Errorf("the limit is %s: %s", limitOf("logins"), text)
	}
	b.click(form(logins, "input[name=force]"))
	b.checkWidth("limits")
	b.screenshot("limits")
	b.size(400, 900)
	if apart := eval[[]string](b, `[...document.querySelectorAll("form.change label")].filter((e) => {
		const label = e.getBoundingClientRect(), field = e.control.getBoundingClientRect();
		return label.top > field.bottom || field.top > label.bottom;
	}).map((e) => e.htmlFor)`); len(apart) > 0 {
		t.Errorf("labels in another line than their fields: %q", apart)
	}
	b.checkWidth("limits on a phone")
	b.follow(form(logins, "button"))
	b.wait(`document.querySelector(".notice.good")`)
	if text := b.text(); limitOf("logins") != "500/1h" || !strings.Contains(text, "forced") {
		t.Errorf("the limit is %s: %s", limitOf("logins"), text)
	}
	b.follow(`form:has(input[name=policy][value="logins"]):has(input[name=end]) button`)
	b.wait(`document.querySelector(".notice.good")?.textContent.includes("program")`)
	if limitOf("logins") != "5/1h" {
		t.Errorf("the limit is %s", limitOf("logins"))
	}

	// A key has the form on its own page.
	b.open("/admin/key?key=member:5")
	ofKey := func(selector string) string {
		return fmt.Sprintf("form:has(input[name=policy][value=%q]):has(input[name=key_b64]):has(input[name=until]) %s", logins.Name, selector)
	}
	b.checkWidth("the form of a key's limit")
	b.do(chromedp.SetValue(chromedp.CSS(ofKey("input[name=limit]")), "20/1h"))
	b.do(chromedp.SetValue(chromedp.CSS(ofKey("input[name=until]")), "72h"))
	b.follow(ofKey("button"))
	b.wait(`document.querySelector(".notice.good")`)
	if text := b.text(); !strings.Contains(text, "This key has an override: 20/1h until") {
		t.Errorf("the page says %s", text)
	}
	b.open("/admin/overrides")
	b.checkWidth("the limit of a key")
	b.screenshot("limits-of-keys")
	b.follow(`form:has(input[name=key_b64]):has(input[name=end]) button`)
	b.wait(`document.querySelector(".notice.good")?.textContent.includes("The override of the key has ended")`)

	s.access = admin.View
	b.open("/admin/overrides")
	if n := eval[int](b, `document.querySelectorAll("form:not([role=search])").length`); n != 0 {
		t.Errorf("%d forms to change something", n)
	}
}
