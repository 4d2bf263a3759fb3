package keyname_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

func TestName(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for _, key := range []string{"", "ip:192.0.2.1", strings.Repeat("k", 4<<10), strings.Repeat("long", 5<<10) + "x"} {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		if got, want := keyname.Secret(secret, key), fmt.Sprintf("hmac:%x", mac.Sum(nil)[:8]); got != want {
			t.Errorf("a key of %d bytes: got %s, want %s", len(key), got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, secret := range [][]byte{nil, make([]byte, keyname.MinSecret)} {
		if err := keyname.CheckSecret(secret, "C.KeySecret", "to show keys unchanged"); err != nil {
			t.Errorf("%d bytes: %v", len(secret), err)
		}
	}
	for _, secret := range [][]byte{{}, make([]byte, keyname.MinSecret-1)} {
		if err := keyname.CheckSecret(secret, "C.KeySecret", "to show keys unchanged"); err == nil || !strings.HasPrefix(err.Error(), "C.KeySecret has ") {
			t.Errorf("%d bytes: %v", len(secret), err)
		}
	}
}
