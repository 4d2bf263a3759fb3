package observe

import (
	"encoding/hex"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

// KeyName returns the name that key has in logs, lists and spans with a KeySecret. The name is "hmac:" and 16 hexadecimal
// digits: the first ones of the HMAC-SHA-256 of key under secret. Use it to find a key there, or to name keys alike
// elsewhere.
func KeyName(secret []byte, key string) string { return keyname.Secret(secret, key) }

// hashName returns the name of a key that is too long to be kept.
func hashName(key string) string {
	return "sha256:" + hex.EncodeToString([]byte(keyname.Short(key)[1:]))
}
