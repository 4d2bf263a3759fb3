package conformance

import (
	"bytes"
	"context"
	"encoding/json"
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
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/admin"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A shop is a service of several replicas behind a load balancer, which sends each request to the next one. It has
// customers, a crawler, and an address that floods it.
type shop struct {
	*testing.T
	browser  context.Context
	random   *rand.Rand
	limiters []*ratelimit.Limiter
	pages    []http.Handler
	next     atomic.Int64
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.pages[int(s.next.Add(1))%len(s.pages)].ServeHTTP(w, r)
}

var shopPolicies = []ratelimit.Policy{
	{Name: "api", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(120).WithBurst(40)},
	{Name: "search", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(2).WithBurst(10)},
	{Name: "login", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(5), LockFor: 15 * time.Minute, FailClosed: true},
	{Name: "uploads", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerHour(100).WithBurst(20)},
	{Name: "webhooks", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerSecond(5).WithBurst(50)},
	{Name: "api-2027", Key: ratelimit.RemoteIP(), Limit: ratelimit.PerMinute(20).WithBurst(5), Shadow: true},
}

// add adds a replica.
func (s *shop) add(addr string, policies []ratelimit.Policy) {
	s.Helper()
	client := redis.NewClient(ratelimit.Must(redisstore.Options("redis://" + addr)))
	quiet := slog.New(slog.DiscardHandler)
	backed := ratelimit.Must(fallback.New(ratelimit.Must(redisstore.New(client, redisstore.Config{Logger: quiet})), nil, fallback.Config{Replicas: 3, Slow: 2 * time.Second, Logger: quiet})) // for a busy machine
	counts, top := observe.NewCounts(observe.CountsConfig{History: true}), ratelimit.Must(observe.NewTop(observe.TopConfig{}))
	limiter := ratelimit.Must(ratelimit.New(ratelimit.Config{
		Store: backed, Timeout: 2 * time.Second, Policies: policies, Observe: observe.Join(counts.Observe, top.Observe), Logger: quiet,
	}))
	s.Cleanup(func() {
		limiter.Close()
		backed.Close()
		client.Close()
	})
	overrides, err := override.Watch(s.Context(), limiter, backed, override.Config{Logger: quiet})
	if err != nil {
		s.Fatal(err)
	}
	page := admin.Handler(limiter, func(*http.Request) (string, admin.Access) { return "ann", admin.Change }, admin.Config{Title: "Shop API", Counts: counts, Top: top, Overrides: overrides, Logger: quiet})
	s.limiters, s.pages = append(s.limiters, limiter), append(s.pages, http.StripPrefix("/admin", page))
}

// request is a request of a key, at one of the replicas.
func (s *shop) request(policy int, format string, args ...any) {
	s.limiters[s.random.IntN(len(s.limiters))].Take(s.Context(), shopPolicies[policy], fmt.Sprintf(format, args...), 1)
}

// serve serves requests for a time, with or without a flood.
func (s *shop) serve(d time.Duration, flood bool) {
	const slice = 100 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(slice) {
		for range 2 + s.random.IntN(3) {
			member := 1000 + int(900*s.random.Float64()*s.random.Float64())
			s.request(0, "member:%d", member)
			switch s.random.IntN(4) {
			case 0:
				s.request(1, "member:%d", member)
			case 1:
				s.request(5, "member:%d", 1000+member%23)
			}
		}
		switch s.random.IntN(8) {
		case 0, 1, 2:
			s.request(1, "ip:2001:db8:7:1::/64")
		case 3:
			s.request(3, "member:%d", 1000+s.random.IntN(80))
		case 4:
			s.request(4, "partner:%d", []int{17, 23, 42}[s.random.IntN(3)])
		case 5:
			s.request(2, "ip:198.51.%d.%d", s.random.IntN(100), s.random.IntN(200))
		}
		for range 5 + s.random.IntN(4) {
			if flood {
				s.request(0, "ip:203.0.113.77")
			}
		}
		if flood && s.random.IntN(5) == 0 {
			s.request(2, "ip:203.0.113.78")
		}
	}
}

// What an operator sees in a flood, in an outage, and while a replica ends and another one is not deployed yet. Behind a
// load balancer, each poll reaches another replica. RATELIMIT_PICTURES=../../docs writes pictures, which takes three minutes.
func TestAdminPictures(t *testing.T) {
	browser := startBrowser(t)
	folder := os.Getenv("RATELIMIT_PICTURES")
	calm, flooded := time.Second, 14*time.Second
	if folder != "" {
		calm, flooded = 75*time.Second, 75*time.Second
	}
	redis := redistest.Start(t)
	proxy := redistest.NewProxy(t, redis.Addr())
	s := &shop{T: t, browser: browser, random: rand.New(rand.NewPCG(17, 17))}
	s.add(redis.Addr(), shopPolicies)
	s.add(redis.Addr(), shopPolicies)
	s.add(proxy.Addr(), shopPolicies)
	server := httptest.NewServer(s)
	defer server.Close()
	change := url.Values{"policy": {"search"}, "limit": {"4/1s burst 20"}, "why": {"a sale"}}
	if answer, err := http.PostForm(server.URL+"/admin/overrides", change); err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}

	s.serve(calm, false)
	s.serve(flooded, true)
	b := newTab(t, browser, server.URL)
	b.open("/admin/")
	s.see(b, folder, "admin.png", true, "amber", "A flood: ip:203.0.113.77 has", "Policy api holds.")
	for _, want := range []string{"3 up", "changed from 2/1s burst 10", "blocked until", "Redis answers"} {
		if text := eval[string](b, "document.body.textContent"); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	b.checkTotals(s)

	redis.Kill()
	s.serve(3*time.Second, true)
	s.see(b, folder, "admin-outage.png", true, "red", "Redis has not answered this replica since", "Policy login refuses all requests")
	b.wait(`document.querySelector("#engine").open && document.querySelector("#shown").textContent.includes("this replica only")`)

	redis.Restart()
	b = newTab(t, browser, server.URL) // with its own time
	older := slices.Clone(shopPolicies)
	older[0].Limit = ratelimit.PerMinute(60)
	s.serve(2*time.Second, false)
	s.add(redis.Addr(), older)
	proxy.BlackHole()
	s.limiters, s.pages = append(s.limiters[:2], s.limiters[3]), append(s.pages[:2], s.pages[3])
	s.serve(8*time.Second, false)
	b.open("/admin/")
	s.see(b, folder, "admin-fleet.png", false, "amber", "2 of 4 replicas are behind")
	b.wait(`document.querySelector("#replicas").textContent.includes("1 up, 2 behind, 1 silent")`)
	for _, name := range eval[[]string](b, `[...document.querySelectorAll("#replicas tbody a")].map((a) => a.getAttribute("href"))`)[:1] {
		b.open("/admin/" + name)
		b.wait(`document.querySelector("#shown").textContent.includes("alone")`)
		b.checkWidth("one replica")
	}
}

// see waits until the headline says what is so, and writes a picture.
func (s *shop) see(b *tab, folder, name string, flood bool, level string, texts ...string) {
	s.Helper()
	if folder != "" {
		s.serve(12*time.Second, flood)
	}
	for _, text := range texts {
		b.wait(`document.querySelector("#headline." + %s)?.textContent.includes(%s)`, level, text)
	}
	b.checkWidth(name)
	if folder != "" {
		b.picture(filepath.Join(folder, name), "footer", 0)
		b.size(1200, 900)
	}
}

// checkTotals checks that what the page sums up never goes down, whichever replica answers.
func (b *tab) checkTotals(s *shop) {
	b.Helper()
	allowed := func() float64 {
		answer, err := http.Get(b.base + "/admin/facts.json")
		if err != nil {
			b.Fatal(err)
		}
		defer answer.Body.Close()
		var facts struct {
			Alone    string
			Replicas []any
			Traffic  map[string]float64
		}
		if err := json.NewDecoder(answer.Body).Decode(&facts); err != nil || len(facts.Replicas) != 3 || facts.Alone != "" {
			b.Errorf("%v: %d replicas: %s", err, len(facts.Replicas), facts.Alone)
		}
		return facts.Traffic["allowed"]
	}
	for last, i := allowed(), 0; i < 4; i++ {
		s.serve(2*time.Second, i%2 == 0)
		now := allowed()
		if now < last {
			b.Errorf("%v requests were allowed, and %v before", now, last)
		}
		last = now
	}
}

// picture writes a picture of the page, down to an element and a margin below it.
func (b *tab) picture(path, element string, margin int64) {
	b.Helper()
	b.scheme("light")
	height := eval[int64](b, `Math.ceil(document.querySelector(%s).getBoundingClientRect().bottom)`, element)
	b.size(1200, height+margin)
	picture, err := run(b, chromedp.CaptureScreenshot())
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
