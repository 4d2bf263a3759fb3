package keyname

import "strings"

// CanBe reports whether requests can have a key. Keys may hold any bytes, but one without an identity would never apply: a
// part of it was lost on the way. The empty key can be: it stands for all keys.
func CanBe(key string) bool {
	if key == "" {
		return true
	}
	if joined, ok := strings.CutPrefix(key, "join:"); ok {
		for part := range strings.SplitSeq(joined, "|") {
			if part == "" || !CanBe(part) {
				return false
			}
		}
		return true
	}
	return strings.TrimSpace(key) != "" && key[0] != ':' && key[len(key)-1] != ':'
}
