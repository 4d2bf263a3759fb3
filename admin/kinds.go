package admin

import (
	"context"
	"slices"
	"strings"
)

// unknownKind says why a key is probably not one that requests have, such as 192.0.2.1 in place of ip:192.0.2.1, or "". A
// block of such a key would succeed and block nobody.
func (h *handler) unknownKind(ctx context.Context, policy, key string) string {
	if h.cfg.Top != nil {
		if _, seen := h.cfg.Top.Key(policy, key); seen {
			return ""
		}
	}
	kinds := h.facts(ctx).roster.All.Kinds
	switch kind := (keyFacts{Key: key}).Kind(); {
	case len(kinds) == 0:
		return "No replica has published kinds of keys yet, so it is not known whether requests have such a key."
	case slices.Contains(kinds, kind):
		return ""
	case kind == "":
		return "The key has no kind. Keys of requests begin with " + beginnings(kinds) + "."
	default:
		return "No replica has seen a key of the kind " + kind + ":. Keys of requests begin with " + beginnings(kinds) + "."
	}
}

// beginnings writes kinds as "ip:, member: or tenant:".
func beginnings(kinds []string) string {
	last := len(kinds) - 1
	if last == 0 {
		return kinds[0] + ":"
	}
	return strings.Join(kinds[:last], ":, ") + ": or " + kinds[last] + ":"
}
