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

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"span": span, "count": numbers.Count, "between": between, "rate": rate, "percent": numbers.Share,
	"stamp": stamp, "clock": clock, "day": day, "date": date, "lasted": lasted, "words": words, "permit": func(t keyTable, may bool) keyTable { t.May = may; return t },
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

	query url.Values // of the address
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
	if m := p.h.cache.last; m != nil && p.h.cfg.KeySecret == nil {
		if f := m.made(); f != nil {
			return f.Kinds
		}
	}
	return nil
}

// askedFacts returns the facts that a request asks for: of all replicas, or of one.
func (h *handler) askedFacts(c *call) (*facts, error) {
	values, err := c.parameters()
	if err != nil {
		return nil, err
	}
	name, err := one(values, "replica")
	if err != nil {
		return nil, err
	}
	if name == "" {
		return h.facts(c.r.Context()), nil
	}
	f := h.newFacts(c.r.Context(), name)
	if f.Shown != name {
		return nil, refuse(http.StatusNotFound, "There is no replica %q any more. The first page lists those that report.", logtext.Show(name, maxNameInError))
	}
	return f, nil
}

func (h *handler) overview(c *call) error {
	f, err := h.askedFacts(c)
	if err != nil {
		return err
	}
	return h.render(c, http.StatusOK, "overview.html", h.cfg.Title, f, link{"facts.json", f.address("facts.json", "")}, link{"top.json", f.address("top.json", "")})
}

func (h *handler) factsJSON(c *call) error {
	f, err := h.askedFacts(c)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, f)
}

func (h *handler) topPage(c *call) error {
	v, err := h.askedTop(c)
	if err != nil {
		return err
	}
	return h.render(c, http.StatusOK, "top.html", v.Heading(), v, link{"top.json", v.Facts.address("top.json", v.Policy)}, link{"facts.json", v.Facts.address("facts.json", "")})
}

// Back is the address of the first page about the same replica.
func (f *facts) Back() string { return f.address("./", "") }

// address returns the address of a page about the same replica.
func (f *facts) address(path, policy string) string {
	values := url.Values{}
	if f.Shown != "" {
		values.Set("replica", f.Shown)
	}
	if policy != "" {
		values.Set("policy", policy)
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
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
	if err := pages.ExecuteTemplate(&out, name, &page{h, heading, c.root, c.user, c.access == Change, json, data, c.r.URL.Query()}); err != nil {
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
