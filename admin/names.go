package admin

import (
	"log/slog"

	"github.com/go-tokenbucket/ratelimit"
)

// maxNamedPolicies bounds the policies under which the name of a key is looked for, if the page is of no policy.
const maxNamedPolicies = 8

// named returns the facts of a key with its name, if that is known by now.
func (h *handler) named(policy, key string) keyFacts {
	k := h.nameKey(key)
	k.Name = h.cfg.Names.Name(policy, key)
	return k
}

// namedTop is like named, of a key as a Top shows it.
func (h *handler) namedTop(policy, shown string) keyFacts {
	k := h.nameTopKey(shown)
	if h.cfg.Names != nil {
		k.Name = h.cfg.Names.Name(policy, h.whole(policy, shown))
	}
	return k
}

// whole returns the key that a Top shows by the name that it has given it, or key itself.
func (h *handler) whole(policy, key string) string {
	if h.cfg.Top != nil && isNameOfKey(key) {
		if found, ok := h.cfg.Top.Find(policy, key); ok {
			return found
		}
	}
	return key
}

// nameUnder returns the name that a key has under the first of some policies that has one for it.
func (h *handler) nameUnder(of []ratelimit.Policy, key string) string {
	for _, p := range of[:min(len(of), maxNamedPolicies)] {
		if name := h.cfg.Names.Name(p.Name, key); name != "" {
			return name
		}
	}
	return ""
}

// attrs are what a log line says of the key.
func (k keyFacts) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("key", k.Shown())}
	if k.Name != "" {
		attrs = append(attrs, slog.String("name", k.Name))
	}
	return attrs
}
