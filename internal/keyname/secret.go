package keyname

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// MinSecret is the minimum length of a secret in bytes.
const MinSecret = 16

// CheckSecret returns an error if secret is too short. A nil secret is allowed. For the text of the error, field is the name
// of the field that holds the secret. unset says what nil does, such as "to show keys unchanged".
func CheckSecret(secret []byte, field, unset string) error {
	if secret == nil || len(secret) >= MinSecret {
		return nil
	}
	return fmt.Errorf("%s has %d bytes: must have at least %d random bytes, or be nil %s", field, len(secret), MinSecret, unset)
}

// Secret returns "hmac:" and the first 16 hexadecimal digits of the HMAC-SHA-256 of key.
func Secret(secret []byte, key string) string {
	mac := hmac.New(sha256.New, secret)
	for room := make([]byte, min(len(key), 4<<10)); key != ""; { // a copy of the whole key may take a megabyte
		n := copy(room, key)
		mac.Write(room[:n])
		key = key[n:]
	}
	return "hmac:" + hex.EncodeToString(mac.Sum(nil)[:8])
}
