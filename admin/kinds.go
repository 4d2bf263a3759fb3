package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

// unknownKind says why a key is probably not one that requests have, such as 192.0.2.1 in place of ip:192.0.2.1, or "". A
// block of such a key would succeed and block nobody.
func (h *handler) unknownKind(ctx context.Context, key string) string {
	all := h.facts(ctx).roster.All
	if h.seen(key) || slices.ContainsFunc(all.Keys, func(k fleet.Key) bool { return string(k.Name) == key }) {
		return ""
	}
	kinds := all.Kinds
	switch kind := (keyFacts{Key: key}).Kind(); {
	case len(kinds) == 0:
		return "No replica has published kinds of keys yet, so it is not known whether requests have such a key."
	case slices.Contains(kinds, kind):
		if fault := keyname.AddressFault(key); fault != "" {
			return "No client has such a key. " + fault
		}
		return ""
	case kind == "":
		return "The key has no kind. Keys of requests begin with " + beginnings(kinds) + "."
	default:
		return "No replica has seen a key of the kind " + kind + ":. Keys of requests begin with " + beginnings(kinds) + "."
	}
}

// seen reports whether this replica lists a key under any policy.
func (h *handler) seen(key string) bool {
	if h.cfg.Top == nil {
		return false
	}
	policies := h.policies()
	return slices.ContainsFunc(policies[:min(len(policies), maxPolicies)], func(p ratelimit.Policy) bool {
		_, listed := h.cfg.Top.Key(p.Name, key)
		return listed
	})
}

// beginnings writes kinds as "ip:, member: or tenant:".
func beginnings(kinds []string) string {
	last := len(kinds) - 1
	if last == 0 {
		return kinds[0] + ":"
	}
	return strings.Join(kinds[:last], ":, ") + ": or " + kinds[last] + ":"
}
