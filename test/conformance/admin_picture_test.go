package conformance

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A day is ten minutes of a shop: its customers, a crawler, and an address that floods the API.
type day struct {
	now      time.Time
	observe  func(context.Context, *ratelimit.Event)
	random   *rand.Rand
	policies map[string]ratelimit.Policy
}

// request is a request of a key that is denied with a chance.
func (d *day) request(policy, key string, denied float64) {
	p := d.policies[policy]
	state := store.State{Allowed: d.random.Float64() >= denied}
	d.observe(context.Background(), &ratelimit.Event{
		Op: "request", Allowed: state.Allowed || p.Shadow, Took: 400 * time.Microsecond,
		Results: []ratelimit.Result{{Policy: policy, Key: key, Limit: p.Limit, Cost: 1, Shadow: p.Shadow, State: state}},
	})
}

// pass goes through the next second, the given one of ten minutes.
func (d *day) pass(second int) {
	d.now = d.now.Add(time.Second)
	wave := 1 + 0.25*float64(second%200)/200
	for range int(wave * (20 + 8*d.random.Float64())) {
		member := int(900 * d.random.Float64() * d.random.Float64() * d.random.Float64())
		d.request("api", fmt.Sprint("member:", 1000+member), 0.01)
		if d.random.IntN(4) == 0 {
			d.request("search", fmt.Sprint("member:", 1000+member), 0.03)
		}
		if d.random.IntN(3) == 0 {
			d.request("api-2027", fmt.Sprint("member:", 1000+member), 0.12)
		}
	}
	if second > 330 {
		for range 25 + d.random.IntN(20) {
			d.request("api", "ip:203.0.113.77", 0.94)
		}
	}
	for range 2 + d.random.IntN(3) {
		d.request("search", "ip:2001:db8:7:1::/64", 0.4)
	}
	if d.random.IntN(2) == 0 {
		d.request("uploads", fmt.Sprint("member:", 1000+d.random.IntN(80)), 0.06)
	}
	if second%60 < 8 { // they come once a minute
		for range 12 + d.random.IntN(9) {
			d.request("webhooks", fmt.Sprint("partner:", []int{17, 23, 42}[d.random.IntN(3)]), 0.01)
		}
	}
	if d.random.IntN(3) == 0 {
		d.request("login", fmt.Sprint("ip:198.51.100.", d.random.IntN(60)), 0.02)
	}
	if second > 420 && second%2 == 0 {
		d.request("login", "ip:203.0.113.77", 0.95)
	}
}

// The picture of the page in the README. RATELIMIT_PICTURE=../../docs/admin.png writes it.
func TestAdminPicture(t *testing.T) {
	browser := startBrowser(t)
	path := os.Getenv("RATELIMIT_PICTURE")

	redis := redistest.Start(t)
	backed := ratelimit.Must(fallback.New(ratelimit.Must(redisstore.New(redis.Client(), redisstore.Config{})), nil, fallback.Config{Slow: 2 * time.Second})) // for a busy machine
	t.Cleanup(func() { backed.Close() })
	key := ratelimit.RemoteIP()
	policies := []ratelimit.Policy{
		{Name: "api", Key: key, Limit: ratelimit.PerMinute(120).WithBurst(40)},
		{Name: "search", Key: key, Limit: ratelimit.PerSecond(2).WithBurst(10)},
		{Name: "login", Key: key, Limit: ratelimit.PerHour(5), LockFor: 15 * time.Minute, FailClosed: true},
		{Name: "uploads", Key: key, Limit: ratelimit.PerHour(100).WithBurst(20)},
		{Name: "webhooks", Key: key, Limit: ratelimit.PerSecond(5).WithBurst(50)},
		{Name: "api-2027", Key: key, Limit: ratelimit.PerMinute(60).WithBurst(20), Shadow: true},
	}
	d := &day{now: time.Now().Add(-10 * time.Minute), random: rand.New(rand.NewPCG(17, 17)), policies: map[string]ratelimit.Policy{}}
	for _, p := range policies {
		d.policies[p.Name] = p
	}
	clock := func() time.Time { return d.now }
	counts := observe.NewCounts(observe.CountsConfig{History: true, Clock: clock})
	top := ratelimit.Must(observe.NewTop(observe.TopConfig{Clock: clock}))
	d.observe = observe.Join(counts.Observe, top.Observe)
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{Store: backed, Timeout: 2 * time.Second, Policies: policies, Logger: slog.New(slog.DiscardHandler)}))
	defer limiter.Close()
	server := httptest.NewServer(http.StripPrefix("/admin", admin.Handler(limiter, func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, admin.Config{Title: "Shop API", Counts: counts, Top: top})))
	defer server.Close()

	for second := range 600 {
		d.pass(second)
	}
	var calls sync.WaitGroup
	for caller := range 16 {
		calls.Go(func() {
			for i := range 60 {
				limiter.Take(t.Context(), policies[i%2], fmt.Sprint("member:", 1000+caller*7+i%40), 1)
			}
		})
	}
	calls.Wait()

	b := newTab(t, browser, server.URL)
	b.open("/admin/")
	b.checkWidth("the page of a busy service")
	b.wait(`document.body.innerText.includes("Redis answers")`)
	if row := eval[string](b, `document.querySelectorAll("#key-list table tr")[1].textContent`); !strings.Contains(row, "ip:203.0.113.77") {
		t.Errorf("the first row is %q", row)
	}
	if path != "" {
		b.picture(path, "footer", 0)
	}
}

// picture writes a picture of the page, down to an element and a margin below it.
func (b *tab) picture(path, element string, margin int64) {
	b.Helper()
	b.scheme("light")
	height := eval[int64](b, `Math.ceil(document.querySelector(%s).getBoundingClientRect().bottom)`, element)
	b.size(1200, height+margin)
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	small, err := smaller(picture)
	if err != nil {
		b.Fatal(err)
	}
	if len(small) > 150_000 {
		b.Errorf("the picture has %d bytes", len(small))
	}
	if err := os.WriteFile(path, small, 0o644); err != nil {
		b.Fatal(err)
	}
}

// smaller returns a picture with 256 colors, which is a third of its size. Of colors that look alike it keeps the most
// frequent one.
func smaller(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	pixels := map[color.RGBA]int{}
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			pixels[color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(pixels), func(a, b color.RGBA) int { return pixels[b] - pixels[a] })
	var palette color.Palette
	for apart := 64; apart > 0; apart /= 2 { // colors that are far apart first, so that none is lost
		for _, c := range colors {
			if len(palette) < 256 && !slices.ContainsFunc(palette, func(of color.Color) bool { return distance(c, of.(color.RGBA)) < apart }) {
				palette = append(palette, c)
			}
		}
	}
	to := image.NewPaletted(from.Bounds(), palette)
	draw.Draw(to, to.Bounds(), from, image.Point{}, draw.Src)
	var small bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, to)
	return small.Bytes(), err
}

func distance(a, b color.RGBA) int {
	of := func(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }
	return of(a.R, b.R) + of(a.G, b.G) + of(a.B, b.B)
}
