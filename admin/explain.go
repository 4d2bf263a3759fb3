package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/curl"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// An explainView is the form that explains a request, as it was filled in, and the explanation.
type explainView struct {
	At                         time.Time
	Method, URL, Headers, Peer string
	Route                      string
	Curl                       string // that could not be read; of one that could, the other fields have what it says
	Pasted                     bool
	Ignored                    []string
	Failed                     string
	status                     int
	Of                         *explain.Explanation // nil: there is none
	raw                        map[string]string    // keys, by how they are shown
}

func (v *explainView) fail(status int, text string) {
	v.status, v.Failed = status, strings.ToUpper(text[:1])+text[1:]+"."
}

func (h *handler) explainPage(c *call) error {
	v, err := h.explained(c)
	if err != nil {
		return err
	}
	return h.render(c, v.status, "explain.html", "Explain a request", v)
}

func (h *handler) explainJSON(c *call) error {
	v, err := h.explained(c)
	switch {
	case err != nil:
		return err
	case v.Failed != "":
		return refuse(v.status, "%s", v.Failed)
	}
	for _, what := range v.Ignored {
		v.Of.Unknown = append(v.Of.Unknown, "The command has a part without an effect here: "+what+".")
	}
	return c.writeJSON(http.StatusOK, v.Of)
}

// explained explains the request that a POST describes.
func (h *handler) explained(c *call) (*explainView, error) {
	v := &explainView{At: time.Now(), Method: "GET", Peer: c.r.RemoteAddr, status: http.StatusOK}
	if host, _, err := net.SplitHostPort(v.Peer); err == nil {
		v.Peer = host
	}
	values, err := c.parameters()
	if err != nil || c.r.Method != "POST" {
		return v, err
	}
	for name, field := range map[string]*string{"method": &v.Method, "url": &v.URL, "headers": &v.Headers, "peer": &v.Peer, "route": &v.Route, "curl": &v.Curl} {
		value, err := one(values, name)
		if err != nil {
			return nil, err
		}
		if value = typed(value); value != "" || name != "method" && name != "url" && name != "peer" {
			*field = value
		}
	}
	asked := &curl.Request{Method: v.Method, URL: v.URL}
	if v.Curl != "" {
		if asked, err = curl.Parse(v.Curl); err != nil {
			v.fail(http.StatusBadRequest, err.Error())
			return v, nil
		}
		v.Method, v.URL, v.Headers, v.Ignored = asked.Method, asked.URL, headerLines(asked), asked.Ignored
		v.Curl, v.Pasted = "", true
	} else if err = asked.AddHeaders(v.Headers); err != nil {
		v.fail(http.StatusBadRequest, "headers: "+err.Error())
		return v, nil
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	r, err := asked.HTTP(bare{ctx}, v.Peer)
	if err != nil {
		v.fail(http.StatusBadRequest, err.Error())
		return v, nil
	}
	r.Host, r.Pattern = cmp.Or(r.Host, c.r.Host), v.Route
	if v.Of = h.explainRequest(r); v.Of == nil {
		v.fail(http.StatusInternalServerError, "the request cannot be explained, because Config.Prepare or a function of the limiter panicked. The log of the service says more")
		return v, nil
	}
	v.hideKeys(h)
	return v, nil
}

// headerLines returns the headers of a request for the form.
func headerLines(r *curl.Request) string {
	var lines []string
	if r.Host != "" {
		lines = append(lines, "Host: "+r.Host)
	}
	for name, values := range r.Header {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// explainRequest prepares and explains a request. It returns nil if a function of the program panics.
func (h *handler) explainRequest(r *http.Request) (e *explain.Explanation) {
	defer func() {
		if p := recover(); p != nil {
			e = nil
			h.logger().LogAttrs(context.Background(), slog.LevelError, "ratelimit: admin explain panicked", slog.String("panic", logtext.Show(fmt.Sprint(p), maxShown)))
		}
	}()
	if h.cfg.Prepare != nil {
		if r = h.cfg.Prepare(r); r == nil {
			panic("Config.Prepare returned nil")
		}
	}
	return h.limiter.Explain(r)
}

// bare is the context of an explained request. It has the deadline of the request of the page, and nothing that
// middleware has put into that: the operator is not the one whose request is explained.
type bare struct{ context.Context }

func (b bare) Value(key any) any {
	if key == http.ServerContextKey || key == http.LocalAddrContextKey {
		return b.Context.Value(key)
	}
	return nil
}

// hideKeys replaces the keys by what the page shows of them. Under a KeySecret it replaces them in all texts, too, and what
// follows the kind of a key. What the operator has typed stays.
func (v *explainView) hideKeys(h *handler) {
	const shortest = 6 // bytes: to replace shorter texts would spoil others
	typed := strings.Join([]string{v.Method, v.URL, v.Headers, v.Peer, v.Route}, "\n")
	v.raw = make(map[string]string)
	shown := make(map[string]string) // by key
	name := func(key string) string {
		shown[key] = cmp.Or(shown[key], h.nameKey(key).Shown())
		return shown[key]
	}
	texts := pointers(v.Of.Unknown)
	var steps []*explain.Step
	for i := range v.Of.Limiters {
		l := &v.Of.Limiters[i]
		texts = append(texts, &l.Err)
		for j := range l.Policies {
			p := &l.Policies[j]
			if texts = append(texts, &p.Why); p.Found != nil {
				steps = append(steps, p.Found)
			}
			if p.Key != "" {
				v.raw[name(p.Key)] = p.Key
				if p.Found != nil {
					shown[p.Found.Key] = name(p.Key) // it is escaped, and may be cut
				}
				p.Key = name(p.Key)
			}
		}
	}
	if h.cfg.KeySecret == nil {
		return
	}
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		if s.Key != "" {
			s.Key = name(s.Key)
		}
		steps, texts = append(steps, s.Tried...), append(append(texts, &s.Err), pointers(s.Notes)...)
	}
	v.Of.Header = v.Of.Header.Clone() // its values may be shared
	for _, values := range v.Of.Header {
		texts = append(texts, pointers(values)...)
	}
	for key, name := range maps.Clone(shown) {
		if _, rest, ok := strings.Cut(key, ":"); ok {
			shown[rest] = name
		}
	}
	var pairs []string
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) } // a key may hold another one
	for _, text := range slices.SortedFunc(maps.Keys(shown), longestFirst) {
		if len(text) >= shortest && !strings.Contains(typed, text) {
			pairs = append(pairs, text, shown[text])
		}
	}
	hide := strings.NewReplacer(pairs...)
	for _, text := range texts {
		*text = hide.Replace(*text)
	}
}

func pointers(list []string) (all []*string) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// Link leads to the buckets of a key, "" if the key is hidden.
func (p *page) Link(policy, shown string) string {
	v, ok := p.Data.(*explainView)
	if !ok || p.h.cfg.KeySecret != nil || v.raw[shown] == "" {
		return ""
	}
	return p.Root + "key?" + p.h.nameKey(v.raw[shown]).address(policy)
}
