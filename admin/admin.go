// Package admin serves a page that shows what a [ratelimit.Limiter] does, on all replicas that share a Redis. An operator can
// reset, refund, block and unblock a key there, change limits, and have a request explained. Everything on the page is also
// JSON. Mount it behind your own authentication:
//
//	counts := observe.NewCounts(observe.CountsConfig{History: true})
//	top := ratelimit.Must(observe.NewTop(observe.TopConfig{}))
//	limiter, err := ratelimit.New(ratelimit.Config{
//		Policies: policies,
//		Observe:  observe.Join(counts.Observe, top.Observe),
//	})
//	// …
//	page := admin.Handler(limiter, authorize, admin.Config{Counts: counts, Top: top})
//	mux.Handle("/admin/", http.StripPrefix("/admin", page))
//
// Do not mount a limiter in front of the page, or a blocked operator could not get in.
//
// # Authorization
//
// The page has no login. The authorize function says for each request who sends it, and what that user may do: [None],
// [View] or [Change]. Behind a proxy that authenticates users, and that removes the header from requests of clients:
//
//	func authorize(r *http.Request) (user string, allowed admin.Access) {
//		user = r.Header.Get("X-Auth-Request-Email")
//		if user == "" {
//			return "", admin.None
//		}
//		return user, admin.View
//	}
//
// For users with a password use [BasicAuth]. With your own sessions, read what your middleware has put into r.Context. Wrap
// the Handler to send users to a login. Programs on a developer's machine can use [Loopback].
//
// # JSON
//
// facts.json has all that the first page shows, top.json?policy=NAME the keys of a policy, key.json?key=KEY the buckets of a
// key, and blocks.json the blocks in force. Changes are POST requests to key/reset, key/refund, key/block and key/unblock.
// overrides.json has the limits in force, which a POST to overrides changes. A POST to explain.json explains a request. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/admin.md.
package admin

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/observe"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/store"
)

// Access is what a request may do.
type Access int

const (
	None   Access = iota // nothing: the answer is 403
	View                 // read everything
	Change               // also reset, refund, block and unblock, and change limits

	askPassword Access = -1 // nothing: the answer is 401
)

func (a Access) mayView() bool { return a == View || a == Change }

// Config configures [Handler]. The zero value is ready to use. Without Counts and Top, the page says how to add them.
type Config struct {
	// Counts are the counts of limiter: set its Config.Observe to their Observe method. Make them with
	// observe.CountsConfig.History, for rates and charts.
	Counts *observe.Counts

	// Top lists the keys of limiter with the most requests and denials. Use [observe.Join] to have both.
	Top *observe.Top

	// Policies are policies that requests do not have, such as those of [ratelimit.Limiter.Admit] and
	// [ratelimit.Limiter.Take]. The page knows the policies of [ratelimit.Limiter.Policies] without them. Only Name
	// and Limit are used.
	Policies []ratelimit.Policy

	// Caches are shown by name, such as a jwtkey.Keys.
	Caches map[string]interface{ Stats() store.CacheStats }

	// Overrides, if set, lets operators change the limits of policies and of single keys on the page, for all replicas.
	// Make them with [override.Watch].
	Overrides *override.Overrides

	// Prepare, if set, is called with each request that the page explains. It returns the request as middleware in front
	// of the limiter would, such as an authentication. Use r.WithContext. It must not write. The request has none of the
	// values of the operator's own request.
	Prepare func(r *http.Request) *http.Request

	// Logger receives one line for each change: user, action, policy, key, and for how long or how many tokens.
	// Default: slog.Default(), looked up for each line.
	Logger *slog.Logger

	// TrustedOrigins are origins such as "https://ops.example.com" whose pages may send changes. Use it if a proxy in
	// front of the page rewrites the Host header. See [http.CrossOriginProtection.AddTrustedOrigin].
	TrustedOrigins []string

	// KeySecret, if not nil, is a secret of at least 16 bytes. The page, the JSON and the log then show each key as
	// "hmac:" and the first 16 hexadecimal digits of its HMAC-SHA-256, as observe.LogConfig.KeySecret does.
	KeySecret []byte

	// Names, if set, shows the name of a key beside the key, also in the log lines of changes. It is asked for the
	// whole key, also where KeySecret hides the key.
	Names *observe.Names

	// Title names the service in the heading of the page.
	Title string
}

// Handler returns the page of limiter. authorize is called for each request, and returns who sends it and what that
// user may do. Its request is the whole one: it may read headers, cookies and the context, and must not write.
//
// The page has no other protection against strangers. So Handler panics if authorize is nil. It also panics if limiter
// is nil, if a policy of cfg has no Name, if a trusted origin is malformed, or if KeySecret is too short.
func Handler(limiter *ratelimit.Limiter, authorize func(*http.Request) (user string, allowed Access), cfg Config) http.Handler {
	if limiter == nil {
		panic("admin: Handler: limiter: must not be nil")
	}
	if authorize == nil {
		panic("admin: Handler: authorize: must not be nil: anybody could change limits. For a program on your own machine use admin.Loopback")
	}
	if err := keyname.CheckSecret(cfg.KeySecret, "Config.KeySecret", "to show keys unchanged"); err != nil {
		panic("admin: Handler: " + err.Error())
	}
	for i, p := range cfg.Policies {
		if p.Name == "" {
			panic(fmt.Sprintf("admin: Handler: Config.Policies[%d]: Name: must be set", i))
		}
	}
	h := &handler{
		limiter:   limiter,
		authorize: authorize,
		cfg:       cfg,
		crossing:  http.NewCrossOriginProtection(),
		renders:   make(chan struct{}, maxRenders),
		changes:   make(chan struct{}, maxRenders),
		started:   time.Now(),
	}
	h.cfg.Policies, h.cfg.KeySecret = slices.Clone(cfg.Policies), slices.Clone(cfg.KeySecret)
	h.cfg.Title = cmp.Or(cfg.Title, "Rate limits")
	for _, origin := range cfg.TrustedOrigins {
		if err := h.crossing.AddTrustedOrigin(origin); err != nil {
			panic(fmt.Sprintf("admin: Handler: Config.TrustedOrigins: %v", err))
		}
	}
	newMember(h)
	return h
}

// A handler is what Handler returns.
type handler struct {
	limiter   *ratelimit.Limiter
	authorize func(*http.Request) (string, Access)
	cfg       Config
	crossing  *http.CrossOriginProtection
	started   time.Time

	renders, changes chan struct{} // places for requests that read, and that change

	cache   factsCache
	counted snapshotCache
	member  *member
	notices notices
}

func (h *handler) logger() *slog.Logger { return cmp.Or(h.cfg.Logger, slog.Default()) }
