package admin

import (
	"cmp"
	"context"
	"errors"
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
	status                     int                  // where Failed is set
	Of                         *explain.Explanation // nil: there is none
	raw                        map[string]string    // keys, by how they are shown
}

// Methods are suggested.
func (v *explainView) Methods() []string {
	return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
}

func (h *handler) explainPage(c *call) error {
	v, err := h.explained(c)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if v.Failed != "" {
		status = v.status
	}
	return h.render(c, status, "explain.html", "Explain a request", v)
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
	v := &explainView{At: time.Now(), Method: "GET", Peer: c.r.RemoteAddr, status: http.StatusBadRequest}
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
			v.Failed = sentence(err)
			return v, nil
		}
		v.Method, v.URL, v.Headers, v.Ignored = asked.Method, asked.URL, headerLines(asked), asked.Ignored
		v.Curl, v.Pasted = "", true
	} else if err = asked.AddHeaders(v.Headers); err != nil {
		v.Failed = "Headers: " + err.Error() + "."
		return v, nil
	}
	ctx, cancel := c.withTimeout()
	defer cancel()
	r, err := asked.HTTP(bare{ctx}, v.Peer)
	if err != nil {
		v.Failed = sentence(err)
		return v, nil
	}
	r.Host, r.Pattern = cmp.Or(r.Host, c.r.Host), v.Route
	if v.Of, err = h.explainRequest(r); err != nil { // a fault of the program
		v.status, v.Failed = http.StatusInternalServerError, "The request cannot be explained: "+err.Error()+". The log of the service says more."
		return v, nil
	}
	v.hideKeys(h)
	return v, nil
}

func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
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

// explainRequest prepares and explains a request. Functions of the program may panic.
func (h *handler) explainRequest(r *http.Request) (_ *explain.Explanation, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.logger().LogAttrs(r.Context(), slog.LevelError, "ratelimit: admin explain panicked", slog.String("panic", logtext.Show(fmt.Sprint(p), maxShown)))
			err = errors.New("Config.Prepare or a function of the limiter panicked")
		}
	}()
	if h.cfg.Prepare != nil {
		if r = h.cfg.Prepare(r); r == nil {
			h.logger().LogAttrs(context.Background(), slog.LevelError, "ratelimit: admin explain failed", slog.String("error", "Config.Prepare returned nil"))
			return nil, errors.New("Config.Prepare returned nil")
		}
	}
	return h.limiter.Explain(r), nil
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

// Routes are suggested: those that the explained policies serve.
func (v *explainView) Routes() (routes []string) {
	if v.Of == nil {
		return nil
	}
	for _, l := range v.Of.Limiters {
		routes = append(routes, l.Routes...)
	}
	slices.Sort(routes)
	return slices.Compact(routes)
}

// hideKeys replaces the keys by what the page shows of them. Under a KeySecret it replaces them in all texts, too, and what
// follows the kind of a key. What the operator has typed stays.
func (v *explainView) hideKeys(h *handler) {
	const shortest = 6 // bytes: to replace shorter texts would spoil others
	typed := strings.Join([]string{v.Method, v.URL, v.Headers, v.Peer, v.Route}, "\n")
	v.raw = make(map[string]string)
	shown := make(map[string]string) // by key
	policies, steps := v.parts()
	for _, p := range policies {
		if p.Key != "" {
			name := h.nameKey(p.Key).Shown()
			v.raw[name], shown[p.Key] = p.Key, name
			if p.Found != nil {
				shown[p.Found.Key] = name // it is escaped, and may be cut
			}
			p.Key = name
		}
	}
	if h.cfg.KeySecret == nil {
		return
	}
	for _, s := range steps {
		if s.Key != "" {
			shown[s.Key] = cmp.Or(shown[s.Key], h.nameKey(s.Key).Shown())
			s.Key = shown[s.Key]
		}
	}
	texts := make(map[string]string)
	for key, name := range shown {
		_, rest, _ := strings.Cut(key, ":")
		for _, text := range []string{key, rest} {
			if len(text) >= shortest && !strings.Contains(typed, text) {
				texts[text] = name
			}
		}
	}
	// A text that holds another one must be looked for first.
	var pairs []string
	for _, text := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
		pairs = append(pairs, text, texts[text])
	}
	hide := strings.NewReplacer(pairs...)
	for i := range v.Of.Limiters {
		v.Of.Limiters[i].Err = hide.Replace(v.Of.Limiters[i].Err)
	}
	for _, p := range policies {
		p.Why = hide.Replace(p.Why)
	}
	lists := [][]string{v.Of.Unknown}
	for _, s := range steps {
		s.Err, lists = hide.Replace(s.Err), append(lists, s.Notes)
	}
	v.Of.Header = v.Of.Header.Clone() // its values may be shared
	lists = slices.AppendSeq(lists, maps.Values(v.Of.Header))
	for _, list := range lists {
		for i := range list {
			list[i] = hide.Replace(list[i])
		}
	}
}

// parts returns all policies of an explanation, and all steps.
func (v *explainView) parts() (policies []*explain.Policy, steps []*explain.Step) {
	for _, l := range v.Of.Limiters {
		for i := range l.Policies {
			if policies = append(policies, &l.Policies[i]); l.Policies[i].Found != nil {
				steps = append(steps, l.Policies[i].Found)
			}
		}
	}
	for i := 0; i < len(steps); i++ {
		steps = append(steps, steps[i].Tried...)
	}
	return policies, steps
}

// Link leads to the buckets of a key, "" if the key is hidden.
func (p *page) Link(policy, shown string) string {
	v, ok := p.Data.(*explainView)
	if !ok || p.h.cfg.KeySecret != nil || v.raw[shown] == "" {
		return ""
	}
	return p.Root + "key?" + p.h.nameKey(v.raw[shown]).address(policy)
}

// Lines returns a header as it would be sent.
func (v *explainView) Lines() string {
	var lines []string
	for name, values := range v.Of.Header {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
