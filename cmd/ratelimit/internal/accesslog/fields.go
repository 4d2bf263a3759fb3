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

// known are our names for the fields of a JSON line, and the names that servers use for them, the best first. They are
// those of nginx, Caddy, Traefik, Envoy and of loggers for Go. A header is called header.NAME.
var known = map[string]string{
	"time":    "time timestamp @timestamp ts time_iso8601 time_local msec StartUTC start_time datetime date",
	"addr":    "addr remote_addr client_ip request.client_ip remote_ip request.remote_ip ClientHost downstream_remote_address client_addr ip client request.remote_addr ClientAddr",
	"method":  "method request_method request.method RequestMethod http_method",
	"url":     "url uri request_uri request.uri RequestPath path request_path",
	"request": "request request_line",
	"status":  "status status_code DownstreamStatus response_code code",
	"bytes":   "bytes body_bytes_sent size bytes_sent DownstreamContentSize response_size",
	"host":    "host http_host request.host RequestHost authority",
	"proto":   "proto protocol server_protocol request.proto RequestProtocol",

	"header.X-Forwarded-For": "http_x_forwarded_for x_forwarded_for request.headers.X-Forwarded-For request_X-Forwarded-For",
	"header.Forwarded":       "http_forwarded request.headers.Forwarded request_Forwarded",
	"header.X-Real-Ip":       "http_x_real_ip request.headers.X-Real-Ip request_X-Real-Ip",
	"header.User-Agent":      "http_user_agent user_agent request.headers.User-Agent request_User-Agent",
	"header.Referer":         "http_referer referer request.headers.Referer request_Referer",
}

const isHeader = "header."

// A path leads to a value: the names of a field, of a field in it, and so on.
type path []string

// fields are where JSON lines may have each of our fields, the best place first.
type fields map[string][]path

// newFields returns the fields to look for. wanted has the name in the log for some of ours.
func newFields(wanted map[string]string) (fields, error) {
	f := make(fields)
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		ours := name
		header, named := strings.CutPrefix(name, isHeader)
		switch {
		case named && strings.EqualFold(header, "Host"):
			faults = append(faults, fmt.Errorf("-map: %q: the header Host is host", name))
			continue
		case named && requestheader.IsName(header):
			ours = isHeader + textproto.CanonicalMIMEHeaderKey(header)
		case named || known[name] == "":
			faults = append(faults, fmt.Errorf("-map: %q: must be one of time, addr, method, url, request, status, bytes, host, proto or header.NAME, with the name of a request header", name))
			continue
		}
		if wanted[name] == "" {
			faults = append(faults, fmt.Errorf("-map: %s: must be the name of a field in the log", name))
		}
		f[ours] = paths(wanted[name])
	}
	// A field that says what others say, too, gives way to those that were set.
	_, request := f["request"]
	replaced := map[string]bool{"method": request, "url": request, "request": f["method"] != nil || f["url"] != nil}
	taken := slices.Collect(maps.Values(wanted))
	for ours, names := range known {
		if f[ours] != nil || replaced[ours] {
			continue
		}
		for name := range strings.FieldsSeq(names) {
			if !slices.Contains(taken, name) {
				f[ours] = append(f[ours], paths(name)...)
			}
		}
	}
	return f, errors.Join(faults...)
}

// paths returns where a field of that name may be. Dots lead to fields of fields, and may also be a part of the name.
func paths(name string) []path {
	if parts := strings.Split(name, "."); len(parts) > 1 {
		return []path{{name}, parts}
	}
	return []path{{name}}
}
