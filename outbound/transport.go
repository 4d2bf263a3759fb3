package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures a [Transport]. Limiter and Policy are required.
type Config struct {
	// Limiter counts the calls. Replicas that share its Store share the quota. Its Policies are not used. Its Store
	// must not be a lease.Store: leased tokens look used.
	Limiter *ratelimit.Limiter

	// Policy is the quota: Limit is what the API grants. It must be a rate, also if LimitFunc returns it, and no
	// calendar quota ([ratelimit.Quota]). Its name has at most 53 bytes. Two more buckets, name/stop and
	// name/corrected, keep what was learned.
	//
	// The functions of Policy get the outgoing request. Default Key: [Host]. MaxWait is the longest wait; default:
	// until the request's context ends. Shadow and Settle must not be set.
	Policy ratelimit.Policy

	// Base makes the requests. Default http.DefaultTransport.
	Base http.RoundTripper

	// Learn returns what a response says about the quota, or false. It must not read the body. Default: [Headers].
	Learn func(*http.Response) (Report, bool)

	// MaxStop is the longest time for which one response can stop the replicas. Default 1 h.
	MaxStop time.Duration
}

// A Transport is an [http.RoundTripper] that keeps requests within a quota. It is safe for concurrent use.
type Transport struct {
	quota *Quota
	base  http.RoundTripper
	learn func(*http.Response) (Report, bool)
}

// New returns a Transport, or an error that names every wrong field.
func New(cfg Config) (*Transport, error) {
	quota, err := NewQuota(cfg)
	if err != nil {
		return nil, err
	}
	t := &Transport{quota: quota, base: cfg.Base, learn: cfg.Learn}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	if t.learn == nil {
		t.learn = Headers
	}
	return t, nil
}

// RoundTrip waits for the turn of r, sends it with Config.Base, and learns from the response. It sends r at most once.
// If r was not sent because of the quota, the error is an *[Error]. A request that fails in Base stays charged: it may
// have been counted.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	turn, err := t.wait(r)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	resp, err := t.base.RoundTrip(r)
	if err == nil && turn.key != "" {
		report, ok := t.learn(resp)
		if !ok {
			report = Report{}
		}
		t.quota.Report(r.Context(), turn, report)
	}
	return resp, err
}

func (t *Transport) wait(r *http.Request) (Turn, error) {
	p := t.quota.policy
	key, err := p.Key(r)
	if err == nil && key == "" {
		err = ratelimit.ErrNoKey
	}
	if errors.Is(err, ratelimit.ErrNoKey) && p.Optional {
		return Turn{}, nil
	}
	if err != nil {
		return Turn{}, fmt.Errorf("outbound: policy %s: %w", p.Name, err)
	}
	if p.LimitFunc != nil {
		if limit := p.LimitFunc(r); limit != (ratelimit.Limit{}) {
			p.Limit = limit
		}
		if !isRate(p.Limit) && p.Limit.Rate != 0 {
			return Turn{}, fmt.Errorf("outbound: policy %s: LimitFunc returned %v: must return a rate, and no calendar quota or concurrency limit", p.Name, p.Limit)
		}
	}
	cost := int64(1)
	if p.Cost != nil {
		cost = p.Cost(r)
	}
	return t.quota.wait(r.Context(), p, key, cost)
}

// CloseIdleConnections closes the idle connections of Config.Base, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Host returns a key function for outgoing requests that counts by the host of the URL, such as "host:api.github.com".
// The port is part of it, unless it is the default of the scheme. All spellings of a host have one key, such as
// "API.GitHub.com." and, over HTTPS, "api.github.com:0443". A request whose host is no valid international name, or whose
// port is above 65535, fails with an error. Different names and addresses of one server are counted apart.
func Host() ratelimit.KeyFunc {
	return func(r *http.Request) (string, error) {
		host := r.URL.Hostname()
		// As in net/http, ASCII may have what IDNA forbids, such as an underscore.
		if strings.ContainsFunc(host, func(c rune) bool { return c > unicode.MaxASCII }) {
			ascii, err := idna.Lookup.ToASCII(host)
			if err != nil {
				return "", fmt.Errorf("host %q: %w", r.URL.Host, err)
			}
			host = ascii
		}
		host = strings.TrimRight(strings.ToLower(host), ".")
		if host == "" {
			return "", ratelimit.ErrNoKey
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			host = addr.Unmap().WithZone("").String()
		}
		if port := r.URL.Port(); port != "" {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				return "", fmt.Errorf("host %q: the port must be at most 65535", r.URL.Host)
			}
			if !(r.URL.Scheme == "https" && n == 443) && !(r.URL.Scheme == "http" && n == 80) {
				host = net.JoinHostPort(host, strconv.FormatUint(n, 10))
			}
		}
		return "host:" + host, nil
	}
}

// An Error is why a call was not made. [errors.As] finds it in the error of an [http.Client].
type Error struct {
	// Policy is the name of the policy, and Key the key of the call.
	Policy, Key string

	// RetryAfter is how long it takes until the same call can succeed, if no other call is made. It is 0 if that is not
	// known, because the Store failed or the context was cancelled, and [ratelimit.Never] for a cost above the burst.
	RetryAfter time.Duration

	// Err is the error of the Store or of the context. It is nil if the turn of the call would come too late.
	Err error

	// The turn would come too late by RetryAfter: bound leaves only so much time to wait for it. "" if that is not why.
	bound string
	left  time.Duration
}

// Error returns a text with the policy, why the call was not made, and the time to retry after. It does not contain the
// key.
func (e *Error) Error() string {
	text := "outbound: policy " + e.Policy
	switch {
	case e.RetryAfter == ratelimit.Never:
		text += ": the cost is above the burst, or the rate is 0"
	case e.RetryAfter > 0:
		if e.Err == nil && e.bound != "" {
			turn := (e.left + e.RetryAfter).Round(time.Millisecond)
			text += fmt.Sprintf(": the turn comes in %v, but %s leaves %v", turn, e.bound, e.left.Round(time.Millisecond))
		}
		text += ": retry after " + e.RetryAfter.Round(time.Millisecond).String()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
