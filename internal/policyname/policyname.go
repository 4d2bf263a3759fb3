// Package policyname says what the name of a policy may be.
package policyname

// Rule is what a name must be, for texts of errors.
const Rule = `1 to 63 ASCII letters, digits or any of "-._/:"`

// Pattern is the [Rule] as a regular expression.
const Pattern = `[-A-Za-z0-9._/:]{1,63}`

// Valid reports whether name follows the [Rule].
func Valid(name string) bool {
	if name == "" || len(name) > 63 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '.', c == '_', c == '/', c == ':':
		default:
			return false
		}
	}
	return true
}
