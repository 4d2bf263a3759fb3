package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/curl"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	// maxRenders bounds the requests that read, and those that change, at the same time.
	maxRenders = 8

	// maxBody and maxQuery bound what a request may send, in bytes.
	maxBody, maxQuery = 16 << 10, 16 << 10

	// maxExplained is maxBody of a request that is explained. Cookies can make it long.
	maxExplained = curl.MaxBytes

	// maxShown bounds the shown part of keys, users and errors, in bytes.
	maxShown = 256
)

// A call is a request that is authorized.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	user   string
	access Access
	route  *route
	path   string              // of the route
	form   map[string][]string // of a POST

	status int // of the answer
	answer []byte

	// root leads from the address of the request to the page, in relative links.
	root string
}

// A route is one address of the page.
type route struct {
	methods []string
	changes bool // a POST needs Change
	serve   func(*handler, *call) error
}

// routes are all addresses, relative to the page.
var routes map[string]*route

func init() { // serve functions refer to routes
	read, lookUp, change := []string{"GET", "HEAD"}, []string{"GET", "HEAD", "POST"}, []string{"POST"}
	routes = map[string]*route{
		"":            {read, false, (*handler).overview},
		"style.css":   {read, false, (*handler).asset},
		"page.js":     {read, false, (*handler).asset},
		"charts.js":   {read, false, (*handler).asset},
		"icon.svg":    {read, false, (*handler).asset},
		"facts.json":  {read, false, (*handler).factsJSON},
		"top.json":    {read, false, (*handler).topJSON},
		"top":         {read, false, (*handler).topPage},
		"blocks":      {read, false, (*handler).blocksPage},
		"blocks.json": {read, false, (*handler).blocksJSON},
		"key":         {lookUp, false, (*handler).keyPage},
		"key.json":    {lookUp, false, (*handler).keyJSON},
		"key/reset":   {change, true, (*handler).change},
		"key/refund":  {change, true, (*handler).change},
		"key/block":   {change, true, (*handler).change},
		"key/unblock": {change, true, (*handler).change},

		"explain":        {lookUp, false, (*handler).explainPage},
		"explain.json":   {change, false, (*handler).explainJSON},
		"overrides":      {lookUp, true, (*handler).overridesPage},
		"overrides.json": {read, false, (*handler).overridesJSON},
	}
}

// find returns the route of a path. The page may be mounted with its prefix stripped or not: so the end of the path
// decides.
func find(p string) (name string, found *route) {
	if strings.HasSuffix(p, "/") {
		return "", routes[""]
	}
	last := path.Base(p)
	if two := path.Base(path.Dir(p)) + "/" + last; routes[two] != nil {
		return two, routes[two]
	}
	return last, routes[last]
}

// A problem is an answer that is no page.
type problem struct {
	status int
	text   string
	allow  string // methods, for 405
}

func (p *problem) Error() string { return p.text }

func refuse(status int, format string, args ...any) error {
	return &problem{status: status, text: fmt.Sprintf(format, args...)}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	c := &call{w: w, r: r}
	if err := h.serve(c); err != nil {
		var p *problem
		if !errors.As(err, &p) {
			p = &problem{status: http.StatusInternalServerError, text: "This page has failed. The log of the service says why."}
			h.logger().LogAttrs(r.Context(), slog.LevelError, "ratelimit: admin page failed", slog.String("error", logtext.Show(err.Error(), maxShown)))
		}
		h.answerProblem(c, p)
	}
	w.WriteHeader(c.status)
	if r.Method != "HEAD" {
		w.Write(c.answer) // an error is the client's
	}
}

// protect sets the headers that keep other sites, and texts of clients, from doing anything with the page.
func protect(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin") // no-referrer would make the Origin of the page's own forms null
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
}

// serve makes the answer to a request, or returns why not. The order matters: nothing is told to a stranger, and nothing
// is read from a page of another site. A client that sends or reads slowly holds no place.
func (h *handler) serve(c *call) (err error) {
	if c.user, c.access = h.access(c.r); !c.access.mayView() {
		return keepOut(c.w.Header(), c.access)
	}
	if c.r.URL.Path == "" { // of the address of the page without its slash
		return c.toSlash()
	}
	if c.path, c.route = find(c.r.URL.Path); c.route == nil {
		return refuse(http.StatusNotFound, "There is no such page. The address of the first page ends with a slash, as in /admin/.")
	}
	c.root = strings.Repeat("../", strings.Count(c.path, "/"))
	if !slices.Contains(c.route.methods, c.r.Method) {
		return &problem{http.StatusMethodNotAllowed, "This address does not take " + logtext.Show(c.r.Method, 32) + ".", strings.Join(c.route.methods, ", ")}
	}
	changes := c.route.changes && c.r.Method == "POST"
	if changes && c.access != Change {
		return refuse(http.StatusForbidden, "You may look at this page, and change nothing.")
	}
	places := h.renders
	if c.r.Method == "POST" {
		if err := h.crossing.Check(c.r); err != nil {
			return refuse(http.StatusForbidden, "The request came from a page of another site. If it did not, a proxy has changed the Host header: see Config.TrustedOrigins.")
		}
		if c.form, err = c.readForm(); err != nil {
			return err
		}
		if changes {
			places = h.changes
		}
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		c.w.Header().Set("Retry-After", "1")
		return refuse(http.StatusServiceUnavailable, "Too many people look at this page at the same time. Try again in a second.")
	}
	return c.route.serve(h, c)
}

// access calls authorize. Whatever goes wrong there, nobody gets in.
func (h *handler) access(r *http.Request) (user string, allowed Access) {
	defer func() {
		if p := recover(); p != nil {
			user, allowed = "", None
			h.logger().LogAttrs(r.Context(), slog.LevelError, "ratelimit: admin authorize panicked", slog.String("panic", logtext.Show(fmt.Sprint(p), maxShown)))
		}
	}()
	user, allowed = h.authorize(r)
	return logtext.Show(user, maxShown), allowed
}

// toSlash answers with the address of the page. StripPrefix has removed its name, which is the last one of RequestURI.
func (c *call) toSlash() error {
	whole, _, _ := strings.Cut(c.r.RequestURI, "?")
	name := path.Base(whole)
	if name == "/" || name == "." {
		return refuse(http.StatusNotFound, "The address of this page ends with a slash.")
	}
	c.w.Header().Set("Location", "./"+name+"/")
	c.status = http.StatusMovedPermanently
	return nil
}

// parameters returns the parameters of the body of a POST, and otherwise of the address, so that a link cannot add any to
// a form. It returns an error if a parameter does not exist.
func (c *call) parameters() (values map[string][]string, err error) {
	if values = c.form; c.r.Method != "POST" {
		if len(c.r.URL.RawQuery) > maxQuery {
			return nil, refuse(http.StatusRequestURITooLong, "The address has more than %d bytes after the question mark.", maxQuery)
		}
		if values, err = parseForm(c.r.URL.RawQuery); err != nil {
			return nil, err
		}
	}
	return values, known(values)
}

// readForm returns the parameters in the body of a POST.
func (c *call) readForm() (map[string][]string, error) {
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || kind != formType && kind != jsonType {
		return nil, refuse(http.StatusUnsupportedMediaType, "The Content-Type must be %s or %s.", formType, jsonType)
	}
	most := int64(maxBody)
	if strings.HasPrefix(c.path, "explain") {
		most = maxExplained
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(http.StatusRequestEntityTooLarge, "The request has more than %d bytes.", most)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "The request ended too early.")
	}
	if kind == jsonType {
		return parseJSON(body)
	}
	return parseForm(string(body))
}

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
	htmlType = "text/html"
)

// wantsJSON reports whether the client asked for JSON rather than a page.
func (c *call) wantsJSON() bool {
	accept := strings.Join(c.r.Header.Values("Accept"), ",")
	return strings.HasSuffix(c.path, ".json") || strings.Contains(accept, jsonType) && !strings.Contains(accept, htmlType)
}

func (c *call) wantsHTML() bool {
	return !c.wantsJSON() && strings.Contains(strings.Join(c.r.Header.Values("Accept"), ","), htmlType)
}

func (h *handler) answerProblem(c *call, p *problem) {
	if p.allow != "" {
		c.w.Header().Set("Allow", p.allow)
	}
	switch {
	case !c.access.mayView():
		c.write(p.status, "text/plain; charset=utf-8", []byte(p.text+"\n"))
	case c.wantsJSON():
		c.writeJSON(p.status, map[string]string{"error": p.text})
	case c.wantsHTML():
		if err := h.render(c, p.status, "problem.html", http.StatusText(p.status), p.text); err != nil {
			c.write(p.status, "text/plain; charset=utf-8", []byte(p.text+"\n"))
		}
	default:
		c.write(p.status, "text/plain; charset=utf-8", []byte(p.text+"\n"))
	}
}

// write sets the answer.
func (c *call) write(status int, kind string, body []byte) {
	c.status, c.answer = status, body
	c.w.Header().Set("Content-Type", kind)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
}

// withTimeout bounds the calls of the store for one answer, so that the page comes within a second.
func (c *call) withTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.r.Context(), answerWithin)
}
