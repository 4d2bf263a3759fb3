package command

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

// known are the policies that requests can have, and the kinds of their keys. A change of any other bucket would be made, and
// have no effect.
type known struct {
	policies, kinds []string
	limits          map[string]string // of the program
}

// forceWords say what -force allows, of all commands that have it.
const forceWords = "a policy, or a kind of key, that no running replica publishes"

// replicas returns what running replicas publish: those of programs with an admin page.
func (c *connection) replicas(ctx context.Context) (fleet.Fleet, error) {
	return fleet.NewReader(c.store, nil).Fleet(ctx)
}

// published returns what running replicas know.
func (c *connection) published(ctx context.Context) (k known, err error) {
	f, err := c.replicas(ctx)
	if err != nil {
		return k, err
	}
	all := f.Merged()
	for _, p := range all.Policies {
		k.policies = append(k.policies, p.Name)
	}
	k.kinds, k.limits = all.Kinds, programLimits(all)
	return k, nil
}

// programLimits returns the limits that the program has set, by policy.
func programLimits(all *fleet.Snapshot) map[string]string {
	limits := make(map[string]string)
	for _, p := range all.Policies {
		limits[p.Name] = cmp.Or(p.Program, p.Limit)
	}
	return limits
}

// checkPolicy returns an error if no request can have a policy. role is the flag or the argument that names it.
func (k *known) checkPolicy(role, policy string) error {
	switch {
	case len(k.policies) == 0:
		return wrongUsage("%s: no running replica publishes its policies, as programs with an admin page do: check -redis and -prefix, or use -force", role)
	case !slices.Contains(k.policies, policy):
		return wrongUsage("%s: there is no policy %s: must be %s; or use -force", role, show(policy), oneOf(k.policies))
	}
	return nil
}

// checkKey returns an error if no request can have a key. role is the flag or the argument that has it.
func (k *known) checkKey(role, key string) error {
	kind, _, _ := strings.Cut(key, ":")
	addr, err := netip.ParseAddr(key)
	must := "it must be a kind, a colon and an identity, and the kind " + oneOf(k.kinds)
	switch {
	case len(k.kinds) == 0:
		return wrongUsage("%s: no running replica has met a kind of key yet, such as ip of ip:192.0.2.1: use -force", role)
	case err == nil && addr.Is4():
		return wrongUsage("%s: has no kind: did you mean ip:%s? Or %s; or use -force", role, key, must)
	case err == nil || kind == key || !slices.Contains(k.kinds, kind):
		return wrongUsage("%s: no replica has met such a key: %s; or use -force", role, must)
	}
	if fault := keyname.AddressFault(key); fault != "" {
		return wrongUsage("%s: no client has such a key. %s Or use -force", role, fault)
	}
	return nil
}

// oneOf lists what a name may be.
func oneOf(names []string) string {
	if len(names) > 1 {
		return "one of " + some(names)
	}
	return some(names)
}

// some lists the first names.
func some(names []string) string {
	const most = 20
	text := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
