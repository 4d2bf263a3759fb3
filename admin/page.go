package admin

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"span": span, "count": numbers.Count, "between": between, "rate": rate, "percent": numbers.Share, "bytes": numbers.Size,
	"stamp": stamp, "clock": clock, "day": day, "date": date, "lasted": lasted, "words": words, "list": newKeyList,
}).ParseFS(assets, "assets/*.html"))

// A page is what templates get.
type page struct {
	h       *handler
	Heading string
	Root    string // leads to the first page
	User    string
	May     bool // change
	JSON    []link
	Data    any
}

type link struct{ Name, Address string }

func (p *page) Title() string      { return p.h.cfg.Title }
func (p *page) Overrides() bool    { return p.h.cfg.Overrides != nil }
func (p *page) Host() string       { return host() }
func (p *page) Started() time.Time { return p.h.started }

// SearchMethod keeps keys that are not shown out of addresses, which land in logs and in the history of a browser.
func (p *page) SearchMethod() string {
	if p.h.cfg.KeySecret != nil {
		return "post"
	}
	return "get"
}

// Search is the key to begin the next look-up with, "" if a person could not type it.
func (p *page) Search() string {
	if v, ok := p.Data.(*keyView); ok && v.ID == "" && v.Shown() == v.raw {
		return v.raw
	}
	return ""
}

// Kinds are the kinds of keys that were seen lately.
func (p *page) Kinds() []string {
	p.h.cache.mu.Lock()
	defer p.h.cache.mu.Unlock()
	if m := p.h.cache.last; m != nil {
		if f := m.made(); f != nil && f.Top != nil {
			return f.Top.Kinds()
		}
	}
	return nil
}

// A keyList is a list of keys for a table.
type keyList struct {
	Keys              []topKeyFacts
	Caption, Empty    string
	Policies, Denials bool // show the policy; of denials
}

func newKeyList(keys []topKeyFacts, caption, empty string, policies, denials bool) keyList {
	return keyList{keys, caption, empty, policies, denials}
}

func (h *handler) overview(c *call) error {
	return h.render(c, http.StatusOK, "overview.html", h.cfg.Title, h.facts(c.r.Context()), link{"facts.json", c.root + "facts.json"}, link{"top.json", c.root + "top.json"})
}

// Missing are the parts that the store does not have, or does not report.
func (f *facts) Missing() (missing []string) {
	for _, part := range []struct {
		name string
		has  bool
	}{{"Redis", f.Redis != nil}, {"fallback", f.Fallback != nil}, {"denials that are answered locally", f.Denials != nil}, {"leases", f.Leases != nil}, {"memory", f.Memory != nil}, {"caches", len(f.Caches) > 0}} {
		if !part.has {
			missing = append(missing, part.name)
		}
	}
	return missing
}

// A topView is the page of a policy, or of all.
type topView struct {
	Heading string
	At      time.Time
	Of      *policyFacts
	Top     *topFacts
}

func (h *handler) topPage(c *call) error {
	policy, top, err := h.askedTop(c)
	if err != nil {
		return err
	}
	v := topView{Heading: "Keys of all policies", At: time.Now(), Top: top}
	address := c.root + "top.json"
	if policy != "" {
		v.Heading = "Policy " + policy
		address += "?" + url.Values{"policy": {policy}}.Encode()
		for _, p := range h.facts(c.r.Context()).Policies {
			if p.Name == policy {
				v.Of = &p
			}
		}
	}
	return h.render(c, http.StatusOK, "top.html", v.Heading, v, link{"top.json", address}, link{"facts.json", c.root + "facts.json"})
}

func (h *handler) keyPage(c *call) error {
	v, err := h.askedView(c)
	if err != nil {
		return err
	}
	return h.renderKey(c, http.StatusOK, v)
}

func (h *handler) renderKey(c *call, status int, v *keyView) error {
	return h.render(c, status, "key.html", "Key "+v.Shown(), v, link{"key.json", c.root + "key.json?" + v.address(v.Policy)})
}

func (h *handler) render(c *call, status int, name, heading string, data any, json ...link) error {
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, name, &page{h, heading, c.root, c.user, c.access == Change, json, data}); err != nil {
		return err
	}
	c.write(status, "text/html; charset=utf-8", out.Bytes())
	return nil
}

// asset serves an embedded file. Browsers keep it and ask whether it has changed.
func (h *handler) asset(c *call) error {
	text, err := assets.ReadFile("assets/" + c.path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	c.w.Header().Set("ETag", tag)
	c.w.Header().Set("Cache-Control", "private, no-cache")
	if c.r.Header.Get("If-None-Match") == tag {
		c.status = http.StatusNotModified
		return nil
	}
	c.write(http.StatusOK, kinds[path.Ext(c.path)], text)
	return nil
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
