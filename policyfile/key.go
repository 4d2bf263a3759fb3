package policyfile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
	"github.com/go-tokenbucket/ratelimit/internal/trust"
	"github.com/go-tokenbucket/ratelimit/internal/yamltree"
)

// keyForms are the keys that are built in. Those with a value are written {name: value}.
var keyForms = []string{"remote_ip", "route", "client_ip", "header", "static", "first_of", "join"}

// key returns the KeyFunc that node says.
func (r *reader) key(node *yamltree.Node, path string, m *Mount) ratelimit.KeyFunc {
	if node.Kind != yamltree.Mapping {
		if node.Kind == yamltree.Sequence {
			r.fault(node, path, "is a list: must be {first_of: […]} or {join: […]}")
			return standInKey
		}
		return r.namedKey(node, path, m)
	}
	if len(node.Fields) != 1 {
		if !node.Cut {
			r.fault(node, path, "has %d fields: must have one of %s", len(node.Fields), strings.Join(keyForms[2:], ", "))
		}
		return standInKey
	}
	form, value := node.Fields[0].Name, node.Fields[0].Value
	path = within(path, shownField(form.Text))
	switch form.Text {
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
		r.fault(form, path, "has no value: must be key: %s", form.Text)
	default:
		r.fault(form, path, "unknown key: %s", known(form.Text, keyForms[2:]))
	}
	return standInKey
}

func (r *reader) namedKey(node *yamltree.Node, path string, m *Mount) ratelimit.KeyFunc {
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
		names := append(slices.Collect(maps.Keys(r.reg.Keys)), keyForms...)
		r.fault(node, path, "%s: Registry.Keys has no such name, and it is not built in: %s", quote(name), known(name, names))
	}
	return standInKey
}

func (r *reader) keys(node *yamltree.Node, path string, m *Mount) (keys []ratelimit.KeyFunc) {
	items := r.items(node, path, "a list of keys, such as [members, remote_ip]")
	for i, item := range items {
		keys = append(keys, r.key(item, fmt.Sprintf("%s[%d]", path, i), m))
	}
	if len(items) == 0 && node.Kind == yamltree.Sequence && !node.Cut {
		r.fault(node, path, "must have a key")
	}
	return keys
}

// ipFields are the fields of client_ip, by the field of ratelimit.IPConfig.
var ipFields = map[string]string{
	"TrustedProxies": "trusted_proxies",
	"TrustUnix":      "trust_unix",
	"ProxyCount":     "proxy_count",
	"Header":         "header",
	"EdgeHeader":     "edge_header",
	"IPv6Bits":       "ipv6_bits",
}

func (r *reader) clientIP(node *yamltree.Node, path string) ratelimit.KeyFunc {
	values := r.fields(node, path, slices.Sorted(maps.Values(ipFields)))
	if len(values) == 0 {
		if node.Kind == yamltree.Mapping && len(node.Fields) == 0 && !node.Cut {
			r.fault(node, path, "must say which proxies to trust, such as {trusted_proxies: [10.0.0.0/8]}; without proxies, use remote_ip")
		}
		return standInKey
	}
	before := len(r.faults)
	var cfg ratelimit.IPConfig
	for field, value := range values {
		at := within(path, field)
		switch field {
		case "trusted_proxies":
			cfg.TrustedProxies = r.prefixes(value, at)
		case "trust_unix":
			cfg.TrustUnix = r.flag(value, at)
		case "proxy_count":
			cfg.ProxyCount = r.number(value, at)
		case "header":
			cfg.Header, _ = r.text(value, at)
		case "edge_header":
			cfg.EdgeHeader, _ = r.text(value, at)
		case "ipv6_bits":
			cfg.IPv6Bits = r.number(value, at)
		}
	}
	if len(r.faults) > before || node.Cut {
		return standInKey // a field that could not be read would seem to be missing
	}
	faults := trust.Model(cfg).Faults()
	for _, fault := range faults {
		end := strings.IndexAny(fault, " :")
		field := ipFields[fault[:end]]
		at := values[field]
		if at == nil {
			at = node
		}
		r.fault(at, within(path, field), "%s", inFileWords(fault[end:], ipFields))
	}
	if len(faults) > 0 {
		return standInKey
	}
	return ratelimit.ClientIP(cfg)
}

func (r *reader) prefixes(node *yamltree.Node, path string) (prefixes []netip.Prefix) {
	texts, nodes := r.texts(node, path, "a list of networks, such as [10.0.0.0/8]")
	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err == nil {
			prefixes = append(prefixes, prefix)
			continue
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
			r.fault(nodes[i], at, "%s: must be a network, such as %s/%d for this one address", quote(text), addr, addr.BitLen())
		} else {
			r.fault(nodes[i], at, "%s: must be a network, such as 10.0.0.0/8 or fd00::/8", quote(text))
		}
	}
	if node.Kind == yamltree.Sequence && len(node.Items) == 0 && !node.Cut {
		r.fault(node, path, "must have a network; without proxies, use remote_ip")
	}
	return prefixes
}

// flowText returns node as YAML on one line.
func flowText(node *yamltree.Node) string {
	var parts []string
	switch node.Kind {
	case yamltree.Sequence:
		for _, item := range node.Items {
			parts = append(parts, flowText(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yamltree.Mapping:
		for _, f := range node.Fields {
			parts = append(parts, flowText(f.Name)+": "+flowText(f.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if plain := strings.Trim(node.Text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"); plain == "" && node.Text != "" {
		return node.Text
	}
	return strconv.Quote(node.Text)
}
