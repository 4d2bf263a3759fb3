package ratelimit

import (
	"fmt"
	"net/http"
	"slices"
)

// SkipAny exempts, as Config.Skip, what one of skips exempts. It panics without skips, and if one is nil.
func SkipAny(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("SkipAny", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if skip(r) {
				return true
			}
		}
		return false
	}
}

// SkipAll exempts, as Config.Skip, what all of skips exempt. It panics without skips, and if one is nil.
func SkipAll(skips ...func(*http.Request) bool) func(*http.Request) bool {
	skips = mustHaveSkips("SkipAll", skips)
	return func(r *http.Request) bool {
		for _, skip := range skips {
			if !skip(r) {
				return false
			}
		}
		return true
	}
}

// SkipNot exempts, as Config.Skip, what skip does not exempt. It is for taking something out of a larger
// exemption, within SkipAll. By itself it does not limit just a few paths or addresses: a client may write
// the same path in an unusual form, or have no address. Mount Limiter.Limit on their routes instead. It
// panics if skip is nil.
func SkipNot(skip func(*http.Request) bool) func(*http.Request) bool {
	mustHaveSkips("SkipNot", []func(*http.Request) bool{skip})
	return func(r *http.Request) bool { return !skip(r) }
}

// mustHaveSkips returns a copy of skips, and panics if there are none or one is nil.
func mustHaveSkips(name string, skips []func(*http.Request) bool) []func(*http.Request) bool {
	if len(skips) == 0 {
		panic("ratelimit: " + name + ": skips: must have at least one")
	}
	for i, skip := range skips {
		if skip == nil {
			panic(fmt.Sprintf("ratelimit: %s: skips: number %d must not be nil", name, i+1))
		}
	}
	return slices.Clone(skips)
}
