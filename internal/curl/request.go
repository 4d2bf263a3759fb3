package curl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

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
	if err := checkMethod(method); err != nil {
		return nil, err
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
	return "", errors.New("the peer must be an IP address such as 203.0.113.9, with or without a port, or @ for a Unix socket")
}

func checkMethod(method string) error {
	if !requestheader.IsToken(method) {
		return errors.New("the method must be a word such as GET")
	}
	return nil
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, " "):
		return nil, errors.New("the address has a space, which no request line can have: write %20")
	case err != nil: // which may quote a password
		return nil, errors.New("the address is malformed: must be like https://example.com/members?page=2")
	case u.Opaque != "" || u.Host == "" && !strings.HasPrefix(u.Path, "/"):
		return nil, errors.New("the address must be like https://example.com/members, or a path such as /members")
	case u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the address must begin with http:// or https://")
	}
	return u, nil
}

// requestURI returns what a client sends of an address in the first line of a request.
func requestURI(address string) string {
	address, _, _ = strings.Cut(address, "#")
	if _, after, ok := strings.Cut(address, "://"); ok && !strings.HasPrefix(address, "/") {
		begin := strings.IndexAny(after, "/?")
		if begin < 0 {
			return "/"
		}
		address = after[begin:]
	}
	if strings.HasPrefix(address, "?") {
		address = "/" + address
	}
	return address
}

// AddHeader adds a line such as "Accept: */*". The name must be a token, and the value may have no control characters.
func (r *Request) AddHeader(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return errors.New(`a header must be like "Name: value"; quote one that has spaces`)
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
		return errors.New("the name of a header must be letters, digits and any of -!#$%&'*+.^_`|~, without a space before the colon")
	}
	if err := checkValue(value); err != nil {
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

func checkValue(value string) error {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("the value of a header has a control character (0x%02x): must be one line of text", c)
		}
	}
	return nil
}
