package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/curl"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// defaultPeer is an address of a client, for documentation.
const defaultPeer = "192.0.2.1"

var explainCommand = &command{
	name:  "explain",
	args:  "[URL | -]",
	short: "Explains what a request would meet, and why. It takes no token.",
	long: `It explains a request by the policies of a file. Without a Redis, all buckets are full. Describe the request with
-curl, as a browser copies it ("Copy as cURL (bash)"), with "-" for such a line on standard input, or with -X, -H and a URL
or path.`,
	examples: []string{
		"ratelimit explain -policies limits.yaml -peer 10.0.0.7 -H 'X-Forwarded-For: 192.0.2.1' /items/5",
		`ratelimit explain -policies limits.yaml -redis redis://localhost:6379 -curl "curl https://example.com/ -H 'X-Key: 5'"`,
		"pbpaste | ratelimit explain -policies limits.yaml -json -",
	},
	prepare: func(f *flags) func(context.Context, *env) error {
		r := defineRedis(f)
		x := explanation{
			policies: f.text("policies", "`FILE` of policies (required)"),
			names:    defineNames(f),
			peer:     f.text("peer", "`ADDRESS` that the connection comes from, such as that of a proxy, or @ for a Unix socket (default "+defaultPeer+")"),
			curl:     f.text("curl", "`LINE` of curl that sends the request"),
			method:   f.text("X", "`METHOD` of the request (default GET)"),
			route:    f.text("route", "`PATTERN` that the request matches, one of the file's (default: the one that its address matches)"),
			json:     f.is("json", "write JSON"),
		}
		f.add("H", "`HEADER` of the request, such as 'X-Key: 5'. It can be repeated", func(line string) error {
			x.header = append(x.header, line)
			return nil
		})
		return func(ctx context.Context, e *env) error { return x.run(ctx, r, e) }
	},
}

// An explanation is what the flags of explain say.
type explanation struct {
	policies, names, peer, curl, method, route *string
	header                                     []string
	json                                       *bool
}

func (x *explanation) run(ctx context.Context, r *redisFlags, e *env) error {
	q, err := x.request(ctx, e)
	if err != nil {
		return err
	}
	file, err := loadPolicies(*x.policies, *x.names, e)
	if err != nil {
		return err
	}
	cfg := ratelimit.Config{Timeout: *r.timeout, Logger: slog.New(slog.DiscardHandler), Policies: file.Everywhere()}
	if r.given() {
		c, err := r.connect()
		if err != nil {
			return err
		}
		defer c.close()
		if _, err := c.store.Inspect(ctx, "none", "none"); err != nil {
			return c.unanswered(err, false)
		}
		cfg.Store = c.store
		fmt.Fprintf(e.err, "ratelimit explain: buckets of the %s\n", c.server)
	} else {
		fmt.Fprint(e.err, "ratelimit explain: all buckets are full, because there is no -redis\n")
	}
	l, err := ratelimit.New(cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	if q.Pattern = *x.route; q.Pattern == "" {
		if q.Pattern, err = routeOf(file, q); err != nil {
			return err
		}
	}
	explained := l.Explain(q, mountedOn(file, q.Pattern)...)
	if *x.json {
		err = writeJSON(e.out, explained)
	} else {
		_, err = io.WriteString(e.out, explained.String())
	}
	switch {
	case err != nil:
		return err
	case explained.Status != 0:
		return ended(found)
	}
	return nil
}

// routeOf returns the pattern of the file that r matches, as ratelimit.Route has it, "" if there is none.
func routeOf(file *policyfile.File, r *http.Request) (pattern string, err error) {
	l, err := ratelimit.New(ratelimit.Config{Policies: file.Everywhere(), Skip: func(*http.Request) bool { return true }})
	if err != nil {
		return "", err
	}
	defer l.Close()
	defer func() { _ = recover() }() // a redirect of the router, which has nowhere to write
	file.Handler(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, _ := ratelimit.Route()(r)
		pattern = strings.TrimPrefix(key, "route:")
	})).ServeHTTP(nil, r.Clone(r.Context()))
	return pattern, nil
}

// mountedOn returns the policies of the file on a route. Under chi, the route has a method also if the pattern has none.
func mountedOn(file *policyfile.File, route string) (policies []ratelimit.Policy) {
	_, path, _ := strings.Cut(route, " ")
	for _, m := range file.Mounts() {
		if len(m.Unknown) == 0 && (slices.Contains(m.On, route) || slices.Contains(m.On, path)) {
			policies = append(policies, m.Policy)
		}
	}
	return policies
}

// request returns the request that the command line describes.
func (x *explanation) request(ctx context.Context, e *env) (*http.Request, error) {
	if len(e.args) > 1 {
		return nil, wrongUsage("%s: unexpected argument: there is one URL; write flags and headers with -X and -H, and quote a line of curl", shown(e.args[1]))
	}
	line, from := *x.curl, "-curl"
	stdin := len(e.args) == 1 && e.args[0] == "-"
	described := !stdin && len(e.args) > 0 || stdin && line != "" || *x.method != "" || len(x.header) > 0
	if stdin {
		text, err := io.ReadAll(io.LimitReader(e.stdin, curl.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		line, from = string(text), "standard input"
	}
	q := &curl.Request{Method: *x.method}
	var err error
	switch {
	case stdin && strings.TrimSpace(line) == "":
		return nil, wrongUsage("standard input: must be a line of curl")
	case line != "" && described:
		return nil, wrongUsage("the line of curl has the method, headers and URL, as -X, -H and an argument have: use one of them")
	case line != "":
		if q, err = curl.Parse(line); err != nil {
			return nil, wrongUsage("%s: %v", from, err)
		}
		for _, ignored := range q.Ignored {
			fmt.Fprintf(e.err, "ratelimit explain: has no effect: %s\n", logtext.Printable(ignored))
		}
	case len(e.args) == 0:
		return nil, wrongUsage("URL is missing, such as https://example.com/items/5 or /items/5; or use -curl")
	case strings.HasPrefix(e.args[0], "curl "): // it may have a token, which the error of an address would show
		return nil, wrongUsage("URL: is a line of curl: give it with -curl, or with - on standard input")
	default:
		q.URL = e.args[0]
		for _, line := range x.header {
			if err := q.AddHeader(line); err != nil {
				return nil, wrongUsage("-H: %v", err)
			}
		}
	}
	r, err := q.HTTP(ctx, cmp.Or(*x.peer, defaultPeer))
	if err != nil {
		return nil, wrongUsage("%v", err)
	}
	return r, nil
}
