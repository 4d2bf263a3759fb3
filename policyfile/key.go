package policyfile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/clientip"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// wordsOfKeys are the keys that are built in and have no value.
var wordsOfKeys = []string{"remote_ip", "route"}

// keyForms are the keys that are built in and have a value: {name: value}.
var keyForms = []field{
	{"client_ip", fewest(1, mapping(ipFields)).about("The client's address behind proxies.")},
	{"header", headerName(tokenPattern).about("The value of a request header, as a hash.", "X-Api-Key")},
	{"static", schema{"type": "string", "minLength": 1}.about("One key for all requests.", "all")},
	{"first_of", oneOrMore(definition("key")).about("The first of these keys that a request has.")},
	{"join", oneOrMore(definition("key")).about("All of these keys together.")},
}

// builtIn are all of them.
var builtIn = slices.Concat(wordsOfKeys, fieldNames(keyForms))

// key returns the KeyFunc that node says.
func (r *reader) key(node *yaml.Node, path string, m *Mount) ratelimit.KeyFunc {
	switch {
	case r.isReported(node, path):
		return standInKey
	case node.Kind == yaml.ScalarNode:
		return r.namedKey(node, path, m)
	case node.Kind == yaml.SequenceNode:
		r.fault(node, path, "is a list: must be {first_of: […]} or {join: […]}")
		return standInKey
	case len(node.Content) != 2:
		r.fault(node, path, "has %d fields: must have one of %s", len(node.Content)/2, strings.Join(fieldNames(keyForms), ", "))
		return standInKey
	}
	form, value := node.Content[0], node.Content[1]
	name, ok := r.text(form, path)
	if !ok {
		return standInKey
	}
	path = within(path, shownField(name))
	switch name {
	case "client_ip":
		return r.clientIP(value, path)
	case "header":
		text, ok := r.text(value, path)
		if ok && requestheader.IsName(text) {
			return ratelimit.Header(text)
		}
		if ok {
			r.fault(value, path, "%s: must be the name of a request header, and not Host", quote(text))
		}
	case "static":
		text, ok := r.text(value, path)
		if ok && text != "" {
			return ratelimit.Static(text)
		}
		if ok {
			r.fault(value, path, "must not be empty")
		}
	case "first_of":
		if keys := r.keys(value, path, m); len(keys) > 0 {
			return ratelimit.FirstOf(keys...)
		}
	case "join":
		if keys := r.keys(value, path, m); len(keys) > 0 {
			return ratelimit.Join(keys...)
		}
	case "remote_ip", "route":
		r.fault(form, path, "has no value: must be key: %s", name)
	default:
		r.fault(form, path, "unknown key: %s", known(name, fieldNames(keyForms)))
	}
	return standInKey
}

func (r *reader) namedKey(node *yaml.Node, path string, m *Mount) ratelimit.KeyFunc {
	name, ok := r.text(node, path)
	if !ok {
		return standInKey
	}
	switch name {
	case "remote_ip":
		return ratelimit.RemoteIP()
	case "route":
		m.byRoute = true
		return ratelimit.Route()
	case "client_ip":
		r.fault(node, path, "client_ip: must say which proxies to trust, such as {client_ip: {trusted_proxies: [10.0.0.0/8]}}, or be remote_ip")
		return standInKey
	case "header", "static", "first_of", "join":
		r.fault(node, path, "%s: must have a value, such as {%s: %s}", name, name, map[string]string{"header": "X-Api-Key", "static": "all", "first_of": "[remote_ip]", "join": "[remote_ip, route]"}[name])
		return standInKey
	}
	if f := r.reg.Keys[name]; f != nil {
		m.byRoute = true
		return f
	}
	if !r.isUnknown(name, m) {
		names := append(slices.Collect(maps.Keys(r.reg.Keys)), builtIn...)
		text := fmt.Sprintf("%s: Registry.Keys has no such name, and it is not built in: %s", quote(name), known(name, names))
		r.add(node, Fault{Field: path, Lacks: name, Text: text})
	}
	return standInKey
}

func (r *reader) keys(node *yaml.Node, path string, m *Mount) (keys []ratelimit.KeyFunc) {
	for i, item := range r.items(node, path, "a list of keys, such as [members, remote_ip]", "must have a key") {
		keys = append(keys, r.key(item, fmt.Sprintf("%s[%d]", path, i), m))
	}
	return keys
}

// An ipField is a field of client_ip, and reads it into the field goName of an IPConfig.
type ipField struct {
	field
	goName string
	read   func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string)
}

// ipFields are sorted, so that inFile replaces EdgeHeader before Header.
var ipFields = []ipField{
	{field{"edge_header", headerName("("+tokenPattern+")?").about("A header with the client's address alone, which your edge sets.", "CF-Connecting-IP", "X-Real-IP")}, "EdgeHeader",
		func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string) {
			cfg.EdgeHeader, _ = r.text(value, at)
		}},
	{field{"header", forwardingHeader().about("The header that the proxies write. Default: X-Forwarded-For.")}, "Header",
		func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string) {
			cfg.Header, _ = r.text(value, at)
		}},
	{field{"ipv6_bits", schema{"type": "integer", "anyOf": []schema{{"const": 0}, {"minimum": 32, "maximum": 128}}}.about("The length of the prefix that identifies an IPv6 client. Default: 64.")}, "IPv6Bits",
		func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string) {
			cfg.IPv6Bits = r.number(value, at)
		}},
	{field{"proxy_count", schema{"type": "integer", "minimum": 0, "maximum": clientip.MaxElements}.about("The number of proxies in front, if their addresses are not known.")}, "ProxyCount",
		func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string) {
			cfg.ProxyCount = r.number(value, at)
		}},
	{field{"trust_unix", flag().about("Trusts peers on a Unix socket.")}, "TrustUnix",
		func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string) {
			cfg.TrustUnix = r.flag(value, at)
		}},
	{field{"trusted_proxies", oneOrMore(text(networkPattern)).about("The networks of your proxies.")}, "TrustedProxies",
		func(r *reader, cfg *ratelimit.IPConfig, value *yaml.Node, at string) {
			cfg.TrustedProxies = r.prefixes(value, at)
		}},
}

// inFile returns a text about a field of ratelimit.IPConfig with the names of files.
func inFile(text string) string {
	for _, f := range ipFields {
		text = strings.ReplaceAll(text, f.goName, f.name)
	}
	return text
}

func (r *reader) clientIP(node *yaml.Node, path string) ratelimit.KeyFunc {
	before := len(r.faults)
	values := r.fields(node, path, fieldNames(ipFields))
	if len(values) == 0 {
		if len(r.faults) == before {
			r.fault(node, path, "must say which proxies to trust, such as {trusted_proxies: [10.0.0.0/8]}; without proxies, use remote_ip")
		}
		return standInKey
	}
	var cfg ratelimit.IPConfig
	names := make(map[string]string)
	for _, f := range ipFields {
		names[f.goName] = f.name
		if value := values[f.name]; value != nil {
			f.read(r, &cfg, value, within(path, f.name))
		}
	}
	if len(r.faults) > before {
		return standInKey // a field that could not be read would seem to be missing
	}
	faults := clientip.Model(cfg).Faults()
	for _, fault := range faults {
		field, text := names[fault.Field], inFile(fault.Text)
		if fault.Value != "" {
			text = fault.Value + ": " + text
		}
		r.fault(cmp.Or(values[field], node), within(path, field), "%s", text)
	}
	if len(faults) > 0 {
		return standInKey
	}
	return ratelimit.ClientIP(cfg)
}

func (r *reader) prefixes(node *yaml.Node, path string) (prefixes []netip.Prefix) {
	r.each(node, path, "a list of networks, such as [10.0.0.0/8]", "must have a network; without proxies, use remote_ip", func(item *yaml.Node, at, text string) {
		prefix, err := netip.ParsePrefix(text)
		if err == nil {
			prefixes = append(prefixes, prefix)
		} else if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
			r.fault(item, at, "%s: must be a network, such as %s/%d for this one address", quote(text), addr, addr.BitLen())
		} else {
			r.fault(item, at, "%s: must be a network, such as 10.0.0.0/8 or fd00::/8", quote(text))
		}
	})
	return prefixes
}

// flowText returns node as YAML on one line.
func flowText(node *yaml.Node) string {
	var parts []string
	switch node.Kind {
	case yaml.SequenceNode:
		for _, item := range node.Content {
			parts = append(parts, flowText(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			parts = append(parts, flowText(node.Content[i])+": "+flowText(node.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if plain := strings.Trim(node.Value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"); plain == "" && node.Value != "" {
		return node.Value
	}
	return strconv.Quote(node.Value)
}
