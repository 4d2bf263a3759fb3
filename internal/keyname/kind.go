package keyname

import (
	"errors"
	"strings"
)

var errKind = errors.New(`must be letters, digits or any of "-_", at most 63, and none of ip, join, static, header, route`)

// CheckKind returns an error if kind cannot begin keys that a program names, as in "member:5". It keeps these apart from
// the keys of package ratelimit.
func CheckKind(kind string) error {
	other := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	}
	switch kind {
	case "", "ip", "join", "static", "header", "route":
		return errKind
	}
	if len(kind) > 63 || strings.ContainsFunc(kind, other) {
		return errKind
	}
	return nil
}
