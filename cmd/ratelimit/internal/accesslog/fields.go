package accesslog

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// The fields of ours that a JSON line may have.
const (
	fieldTime = iota
	fieldAddr
	fieldMethod
	fieldURL
	fieldRequest
	fieldStatus
	fieldBytes
	fieldHost
	fieldProto
	fieldHeaders // from here on: a header each
)

// known are the names of our fields, and the names that servers use for them, the best first. They are those of nginx,
// Caddy, Traefik, Envoy and of loggers for Go.
var known = []struct {
	ours  string
	names string
}{
	fieldTime:    {"time", "time timestamp @timestamp ts time_iso8601 time_local msec StartUTC start_time datetime date"},
	fieldAddr:    {"addr", "addr remote_addr client_ip request.client_ip remote_ip request.remote_ip ClientHost downstream_remote_address client_addr ip client request.remote_addr ClientAddr"},
	fieldMethod:  {"method", "method request_method request.method RequestMethod http_method"},
	fieldURL:     {"url", "url uri request_uri request.uri RequestPath path request_path"},
	fieldRequest: {"request", "request request_line"},
	fieldStatus:  {"status", "status status_code DownstreamStatus response_code code"},
	fieldBytes:   {"bytes", "bytes body_bytes_sent size bytes_sent DownstreamContentSize response_size"},
	fieldHost:    {"host", "host http_host request.host RequestHost authority"},
	fieldProto:   {"proto", "proto protocol server_protocol request.proto RequestProtocol"},
}

// headers have common names, too.
var headers = map[string]string{
	"X-Forwarded-For": "http_x_forwarded_for x_forwarded_for request.headers.X-Forwarded-For request_X-Forwarded-For",
	"Forwarded":       "http_forwarded request.headers.Forwarded request_Forwarded",
	"X-Real-Ip":       "http_x_real_ip request.headers.X-Real-Ip request_X-Real-Ip",
	"User-Agent":      "http_user_agent user_agent request.headers.User-Agent request_User-Agent",
	"Referer":         "http_referer referer request.headers.Referer request_Referer",
}

// fields are the fields to look for in JSON lines.
type fields struct {
	root  *node
	names []string // the header of each field from fieldHeaders on
	found []value  // of the line
}

// A node is a name in a JSON line, below the names above it.
type node struct {
	below map[string]*node
	is    int // number of our field, -1: none
	rank  int // of the names for it, from 0, the best
}

// A value is what a line has for a field of ours.
type value struct {
	rank  int // of its name; -1: there is none
	text  string
	more  []string // further values, of a list
	isRaw bool     // no string: a number, or true or false
}

func newNode() *node { return &node{is: -1} }

// add lets n find field by path. Dots lead to fields of fields, and may also be a part of a name.
func (n *node) add(path string, field, rank int) {
	at := n
	for name := range strings.SplitSeq(path, ".") {
		at = at.child(name)
	}
	at.is, at.rank = field, rank
	if strings.Contains(path, ".") {
		flat := n.child(path)
		flat.is, flat.rank = field, rank
	}
}

func (n *node) child(name string) *node {
	if n.below == nil {
		n.below = make(map[string]*node)
	}
	if n.below[name] == nil {
		n.below[name] = newNode()
	}
	return n.below[name]
}

// at returns the node of a path, or nil.
func (n *node) at(path string) *node {
	for name := range strings.SplitSeq(path, ".") {
		if n = n.below[name]; n == nil {
			return nil
		}
	}
	return n
}

func newFields(wanted map[string]string) (*fields, error) {
	f := &fields{root: newNode()}
	given := make(map[int]bool)
	var faults []error
	var ours []string
	for _, k := range known {
		ours = append(ours, k.ours)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		field := slices.Index(ours, name)
		header, isHeader := strings.CutPrefix(name, "header.")
		switch {
		case isHeader && strings.EqualFold(header, "Host"):
			faults = append(faults, fmt.Errorf("fields: %q: the header Host is host", name))
			continue
		case isHeader && requestheader.IsName(header):
			field = fieldHeaders + len(f.names)
			f.names = append(f.names, textproto.CanonicalMIMEHeaderKey(header))
		case field < 0:
			faults = append(faults, fmt.Errorf("fields: %q: must be one of %s or header.NAME, with the name of a request header", name, strings.Join(ours, ", ")))
			continue
		}
		if wanted[name] == "" {
			faults = append(faults, fmt.Errorf("fields: %s: must be the name of a field in the log", name))
			continue
		}
		given[field] = true
		f.root.add(wanted[name], field, 0)
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	add := func(field int, names string) {
		for rank, name := range strings.Fields(names) {
			if at := f.root.at(name); at == nil || at.is < 0 {
				f.root.add(name, field, rank)
			}
		}
	}
	for field, k := range known {
		// A field that says what others say, too, gives way to those that were set.
		replaced := field == fieldRequest && (given[fieldMethod] || given[fieldURL]) ||
			(field == fieldMethod || field == fieldURL) && given[fieldRequest]
		if !given[field] && !replaced {
			add(field, k.names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !slices.Contains(f.names, name) {
			f.names = append(f.names, name)
			add(fieldHeaders+len(f.names)-1, headers[name])
		}
	}
	f.found = make([]value, fieldHeaders+len(f.names))
	return f, nil
}
