package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// startBrowser starts a browser for the subtests of t. Without chromium the test is skipped, except where CI or
// RATELIMIT_REQUIRE_BROWSER is set.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	if os.Getenv("RATELIMIT_REQUIRE_BROWSER") != "" {
		if _, err := exec.LookPath("chromium"); err != nil {
			t.Fatal(err)
		}
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(needs(t, "chromium")),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(time.Minute),
		chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP shop.example 127.0.0.1"),
	)
	if os.Getuid() == 0 { // its sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, quit := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits until it has ended
			t.Errorf("the browser: %v", err)
		}
		quit()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// A tab is a page in a browser. What it reports as an error fails the test, and so do requests to other servers.
type tab struct {
	*testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	expected []string // parts of reports that are no errors
	reports  []string
}

// stepTimeout bounds each step of a test in a browser, on the slowest machine. A test has as many steps as it needs.
const stepTimeout = 60 * time.Second

// newTab opens a tab for pages of a server.
func newTab(t *testing.T, browser context.Context, base string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser)
	b := &tab{T: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		closeTab()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, report := range b.reports {
			if !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(report, part) }) {
				t.Errorf("the browser reports %s", report)
			}
		}
	})
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of its first call
		t.Fatal(err)
	}
	command(b, log.Enable, cdp.Empty{})
	command(b, network.Enable, network.EnableParams{})
	command(b, page.Enable, page.EnableParams{})
	command(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		document.addEventListener("securitypolicyviolation", (e) => console.error("security policy violation: " + e.violatedDirective + " " + e.blockedURI));
		window.addEventListener("unhandledrejection", (e) => console.error("unhandled rejection: " + e.reason));
	`})
	b.size(1200, 900)
	return b
}

func (b *tab) listen(event any) {
	report := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		report = fmt.Sprintf("an exception: %+v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			report += fmt.Sprintf("%s: %s %s ", e.Type, arg.Value, arg.Description)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning || e.Entry.Source == log.EntrySourceSecurity {
			report = fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		report = "a dialog: " + e.Message
		go chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.base+"/") {
			report = "a request to " + e.Request.URL
		}
	}
	if report != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reports = append(b.reports, report)
	}
}

// expect says that a report with this part is no error.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, part)
}

// run runs an action within stepTimeout.
func run[T any](b *tab, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	return chromedp.Run(ctx, action)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%v\nthe page says: %.2000s", err, b.text())
	}
}

// command runs a command of the browser's protocol.
func command[P, R any](b *tab, c cdp.Command[P, R], params P) R {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	result, err := chromedp.Call(ctx, c, params)
	if err != nil {
		b.Fatalf("%s: %v", c.Method, err)
	}
	return result
}

// text returns the text of the page, for messages.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	return text
}

// open opens an address of the server, and waits until the page is there.
func (b *tab) open(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *tab, expression string, args ...any) (value T) {
	b.Helper()
	value, err := run(b, chromedp.Evaluate[T](script(expression, args), chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v\nthe page says: %.2000s", expression, err, b.text())
	}
	return value
}

func script(expression string, args []any) string {
	quoted := make([]any, len(args))
	for i, arg := range args {
		text, err := json.Marshal(arg)
		if err != nil {
			panic(err)
		}
		quoted[i] = string(text)
	}
	return fmt.Sprintf(expression, quoted...)
}

// wait waits until a JavaScript expression is true, also on the page to which the browser is going.
func (b *tab) wait(expression string, args ...any) {
	b.Helper()
	expression = script(expression, args)
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		holds, err := run(b, chromedp.Evaluate[bool]("!!("+expression+")", chromedp.EvalAwaitPromise))
		switch {
		case err == nil && holds:
			return
		case err != nil && !strings.Contains(err.Error(), "navigated or closed"):
			b.Fatalf("%s: %v\nthe page says: %.2000s", expression, err, b.text())
		case time.Since(begin) > 20*time.Second:
			b.Fatalf("%s has not come true, error %v; the page says: %s", expression, err, b.text())
		}
	}
}

// size sets the size of the window.
func (b *tab) size(width, height int64) {
	b.Helper()
	command(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// scheme sets the color scheme that the user prefers: light or dark.
func (b *tab) scheme(scheme string) {
	b.Helper()
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// withoutScripts switches JavaScript of pages off.
func (b *tab) withoutScripts() {
	b.Helper()
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// click moves the mouse to the one element that a CSS selector names, and clicks it. If that leads to another page, use
// follow.
func (b *tab) click(selector string) {
	b.Helper()
	b.do(b.clickOf(selector))
}

// follow clicks the one element that a CSS selector names, which leads to another page. It waits until that page is there.
func (b *tab) follow(selector string) {
	b.Helper()
	b.leave(b.clickOf(selector))
}

func (b *tab) clickOf(selector string) chromedp.Action[chromedp.Void] {
	b.Helper()
	if n := eval[int](b, `document.querySelectorAll(%s).length`, selector); n != 1 {
		b.Fatalf("%d elements are %s", n, selector)
	}
	return chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible, chromedp.NodeEnabled)
}

// leave does what leads to another page, and waits until that page is there. Otherwise the test might look at the page that
// it leaves. The script of that page may show the change already, and elements that are found there are gone a moment later.
func (b *tab) leave(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	eval[any](b, `void (window.leaving = true)`)
	b.do(actions...)
	b.wait(`!window.leaving && document.readyState === "complete"`)
}

// screenshot writes a picture of the whole page into the folder of RATELIMIT_SCREENSHOTS.
func (b *tab) screenshot(name string) {
	b.Helper()
	folder := os.Getenv("RATELIMIT_SCREENSHOTS")
	if folder == "" {
		return
	}
	picture, err := run(b, chromedp.FullScreenshot(100))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(folder+"/"+name+".png", picture, 0o644); err != nil {
		b.Fatal(err)
	}
}

// An axNode is an element as assistive technology sees it.
type axNode struct{ role, name string }

// accessibleTree returns all nodes that assistive technology sees, in their order.
func (b *tab) accessibleTree() (nodes []axNode) {
	b.Helper()
	text := func(v *accessibility.Value) (text string) {
		if v != nil {
			json.Unmarshal(v.Value, &text)
		}
		return text
	}
	command(b, accessibility.Enable, cdp.Empty{})
	for _, n := range command(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if !n.Ignored {
			nodes = append(nodes, axNode{text(n.Role), text(n.Name)})
		}
	}
	return nodes
}
