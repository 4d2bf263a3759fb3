package curl

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// A Request is a request that somebody has described.
type Request struct {
	Method string      // default GET
	URL    string      // absolute, or a path
	Host   string      // by a Host header; default: of URL
	Header http.Header // without Host
	Length int64       // of the body, which is not kept

	// Ignored lists flags and other parts that have no effect here, as texts for people.
	Ignored []string
}

// HTTP returns the request as a server receives it from peer, an address with or without a port. It has no body.
func (r *Request) HTTP(ctx context.Context, peer string) (*http.Request, error) {
	u, err := parseURL(r.URL)
	if err != nil {
		return nil, err
	}
	method := cmp.Or(r.Method, "GET")
	if !requestheader.IsToken(method) {
		return nil, fmt.Errorf("method %q: must be a word such as GET", logtext.Show(method, 64))
	}
	remote, err := remoteAddr(peer)
	if err != nil {
		return nil, err
	}
	target, err := url.ParseRequestURI(requestURI(r.URL))
	if err != nil {
		return nil, err // never, since parseURL took it
	}
	header := r.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	return (&http.Request{
		Method:        method,
		URL:           target,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          http.NoBody,
		ContentLength: r.Length,
		Host:          cmp.Or(r.Host, u.Host),
		RemoteAddr:    remote,
		RequestURI:    requestURI(r.URL),
	}).WithContext(ctx), nil
}

// remoteAddr returns peer as net/http has it in RemoteAddr. "@" is a client of a Unix socket.
func remoteAddr(peer string) (string, error) {
	if peer == "@" {
		return peer, nil
	}
	if a, err := netip.ParseAddr(strings.Trim(peer, "[]")); err == nil {
		return net.JoinHostPort(a.String(), "0"), nil
	}
	if a, err := netip.ParseAddrPort(peer); err == nil {
		return net.JoinHostPort(a.Addr().String(), strconv.Itoa(int(a.Port()))), nil
	}
	return "", fmt.Errorf("peer address %q: must be an IP address such as 203.0.113.9, with or without a port, or @ for a Unix socket", logtext.Show(peer, 64))
}

// AddHeader adds a line such as "Accept: */*". The name must be a token, and the value may have no control characters.
func (r *Request) AddHeader(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf(`header %q: must be like "Name: value"`, logtext.Show(line, 64))
	}
	return add(r, name, value)
}

// AddHeaders adds the lines of text. An error names the line, counted from 1. Empty lines are left out.
func (r *Request) AddHeaders(text string) error {
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimRight(line, "\r"); strings.TrimSpace(line) == "" {
			continue
		}
		if err := r.AddHeader(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

func add(r *Request, name, value string) error {
	value = strings.Trim(value, " \t")
	if !requestheader.IsToken(name) {
		return fmt.Errorf("header %q: the name must be letters, digits and any of -!#$%%&'*+.^_`|~, without a space before the colon", logtext.Show(name, 64))
	}
	if err := checkValue(name, value); err != nil {
		return err
	}
	if http.CanonicalHeaderKey(name) == "Host" {
		r.Host = value
		return nil
	}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Add(name, value)
	return nil
}

func checkValue(name, value string) error {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("header %s: the value has a control character (0x%02x): must be one line of text", logtext.Show(name, 64), c)
		}
	}
	return nil
}
