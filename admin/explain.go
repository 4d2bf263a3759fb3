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
	"github.com/go-tokenbucket/ratelimit/store"
)

// An explainView is the form that explains a request, as it was filled in, and the explanation.
type explainView struct {
	At                         time.Time
	Method, URL, Headers, Peer string
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
	for name, field := range map[string]*string{"method": &v.Method, "url": &v.URL, "headers": &v.Headers, "peer": &v.Peer, "curl": &v.Curl} {
		value, err := one(values, name)
		if err != nil {
			return nil, err
		}
		if value = typed(value); value != "" || name == "headers" || name == "curl" {
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
	r, err := asked.HTTP(bare{ctx, h.cfg.Handler}, v.Peer)
	if err != nil {
		v.Failed = sentence(err)
		return v, nil
	}
	r.Host = cmp.Or(r.Host, c.r.Host)
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
type bare struct {
	context.Context
	root http.Handler
}

func (b bare) Value(key any) any {
	switch {
	case key == http.ServerContextKey && b.root != nil:
		return &http.Server{Handler: b.root}
	case key == http.ServerContextKey, key == http.LocalAddrContextKey:
		return b.Context.Value(key)
	}
	return nil
}

// hideKeys replaces the keys by what the page shows of them.
func (v *explainView) hideKeys(h *handler) {
	v.raw = make(map[string]string)
	hidden := make(map[string]string) // what the page shows, by key
	for i := range v.Of.Limiters {
		for j := range v.Of.Limiters[i].Policies {
			p := &v.Of.Limiters[i].Policies[j]
			if p.Key == "" {
				continue
			}
			name := h.nameKey(p.Key).Shown()
			v.raw[name], hidden[p.Key] = p.Key, name
			if p.Found != nil && p.Found.Key != "" {
				hidden[p.Found.Key] = name // it is escaped, and may be cut
			}
			p.Key = name
		}
	}
	if h.cfg.KeySecret != nil {
		v.hideTexts(h, hidden)
	}
}

// hideTexts replaces keys in all texts of an explanation, and what follows the kind of a key. What the operator has typed
// stays.
func (v *explainView) hideTexts(h *handler, hidden map[string]string) {
	for i := range v.Of.Limiters {
		for j := range v.Of.Limiters[i].Policies {
			collect(v.Of.Limiters[i].Policies[j].Found, func(key string) {
				if hidden[key] == "" {
					hidden[key] = h.nameKey(key).Shown()
				}
			})
		}
	}
	const shortest = 6 // bytes: to replace shorter texts would spoil others
	texts := maps.Clone(hidden)
	typed := strings.Join([]string{v.Method, v.URL, v.Headers, v.Peer}, "\n")
	for key, name := range hidden {
		if _, rest, ok := strings.Cut(key, ":"); ok && len(rest) >= shortest && !strings.Contains(typed, rest) && texts[rest] == "" {
			texts[rest] = name
		}
	}
	// A text that holds another one must be looked for first.
	var pairs []string
	for _, text := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) {
		if len(text) >= shortest && !strings.Contains(typed, text) {
			pairs = append(pairs, text, texts[text])
		}
	}
	hide := strings.NewReplacer(pairs...).Replace
	e := v.Of
	e.Body, e.Header = hide(e.Body), e.Header.Clone() // its values may be shared
	for _, values := range e.Header {
		for i := range values {
			values[i] = hide(values[i])
		}
	}
	hideAll(e.Unknown, hide)
	for i := range e.Limiters {
		e.Limiters[i].Err = hide(e.Limiters[i].Err)
		for j := range e.Limiters[i].Policies {
			p := &e.Limiters[i].Policies[j]
			p.Why = hide(p.Why)
			hideStep(p.Found, hidden, hide)
		}
	}
}

func hideAll(texts []string, hide func(string) string) {
	for i := range texts {
		texts[i] = hide(texts[i])
	}
}

// collect calls f with the keys of a step and those below it.
func collect(s *explain.Step, f func(string)) {
	if s == nil {
		return
	}
	if s.Key != "" {
		f(s.Key)
	}
	for _, tried := range s.Tried {
		collect(tried, f)
	}
}

func hideStep(s *explain.Step, hidden map[string]string, hide func(string) string) {
	if s == nil {
		return
	}
	s.Key, s.Err = hidden[s.Key], hide(s.Err)
	hideAll(s.Notes, hide)
	for _, tried := range s.Tried {
		hideStep(tried, hidden, hide)
	}
}

// Link leads to the buckets of a key, "" if the key is hidden.
func (p *page) Link(policy, shown string) string {
	v, ok := p.Data.(*explainView)
	if !ok || p.h.cfg.KeySecret != nil || v.raw[shown] == "" {
		return ""
	}
	return p.Root + "key?" + p.h.nameKey(v.raw[shown]).address(policy)
}

// Verdict says what would become of the request.
func (v *explainView) Verdict() string {
	e := v.Of
	switch {
	case e.Status != 0:
		return fmt.Sprintf("The answer would be %d %s.", e.Status, http.StatusText(e.Status))
	case e.Wait > 0:
		return "The request would wait " + span(seconds(e.Wait)) + ", and then reach the handler."
	}
	return "The request would reach the handler."
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

// bucketState describes a bucket of an explanation.
func bucketState(s *store.State) string {
	if s == nil {
		return ""
	}
	text := count(s.Remaining) + " tokens"
	if s.Remaining == 1 {
		text = "1 token"
	}
	switch {
	case s.Blocked:
		text += ", blocked for " + span(seconds(s.RetryAfter))
	case s.Wait > 0:
		text += ", in debt for " + span(seconds(s.Wait))
	}
	if s.ResetAfter > 0 {
		text += ", full in " + span(seconds(s.ResetAfter))
	} else if !s.Blocked {
		text += ", full"
	}
	if s.Degraded {
		text += " (of a stand-in)"
	}
	return text
}

func retryAfter(s *store.State) string {
	if s.RetryAfter == store.Never {
		return "no time: the cost is above the burst"
	}
	return span(seconds(s.RetryAfter))
}
