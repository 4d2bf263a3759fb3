// Package skip has exemptions for [ratelimit.Config.Skip]: requests that spend nothing and are not limited. No header
// that a client can send makes a request exempt, except for ClientIPs with an IPConfig that believes such a header.
package skip

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Any exempts what one of skips exempts. It panics without skips, and if one is nil.
func Any(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("Any", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if skip(r) {
				return true
			}
		}
		return false
	}
}

// All exempts what all of skips exempt. It panics without skips, and if one is nil.
func All(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("All", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if !skip(r) {
				return false
			}
		}
		return true
	}
}

// Not exempts what skip does not exempt. It is for taking something out of a larger
// exemption, within All. By itself it does not limit just a few paths or addresses: a client may write
// the same path in an unusual form, or have no address. Mount [ratelimit.Limiter.Limit] on their routes instead. It
// panics if skip is nil.
func Not(skip func(*http.Request) bool) func(*http.Request) bool {
	mustHaveSkips("Not", []func(*http.Request) bool{skip})
	return func(r *http.Request) bool { return !skip(r) }
}

// mustHaveSkips returns a copy of skips, and panics if there are none or one is nil.
func mustHaveSkips(name string, skips []func(*http.Request) bool) []func(*http.Request) bool {
	if len(skips) == 0 {
		panic("skip: " + name + ": skips: must have at least one")
	}
	for i, skip := range skips {
		if skip == nil {
			panic(fmt.Sprintf("skip: %s: skips: number %d must not be nil", name, i+1))
		}
	}
	return slices.Clone(skips)
}

// mustBeFaultless panics if there are faults in the arguments of a function.
func mustBeFaultless(name string, faults []string) {
	if len(faults) > 0 {
		panic("skip: " + name + ": " + strings.Join(faults, "; "))
	}
}
