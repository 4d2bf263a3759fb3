package keyname_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
)

func TestLongKeysAreHashed(t *testing.T) {
	hashed := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return "\xff" + string(sum[:])
	}
	longest := strings.Repeat("k", keyname.MaxShort)
	for name, c := range map[string]struct{ key, want string }{
		"a usual one":             {"ip:192.0.2.1", "ip:192.0.2.1"},
		"none":                    {"", ""},
		"the longest":             {longest, longest},
		"one byte more":           {longest + "k", hashed(longest + "k")},
		"the marker":              {"\xff", hashed("\xff")},
		"a short key":             {hashed(longest + "k"), hashed(longest + "k")},
		"longer than a short key": {hashed(longest+"k") + "k", hashed(hashed(longest+"k") + "k")},
		"the marker further on":   {"k\xff", "k\xff"},
	} {
		if got := keyname.Short(c.key); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestShortKeysAreNotCopied(t *testing.T) {
	key := strings.Repeat("k", keyname.MaxShort)
	if n := testing.AllocsPerRun(100, func() { keyname.Short(key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A key may be as long as the headers of a request.
func TestLongKeysAreNotCopied(t *testing.T) {
	key := strings.Repeat("k", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		keyname.Short(key)
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 10; n > 16<<10 {
		t.Errorf("%d bytes for a key of 1 MiB", n)
	}
}

func FuzzOf(f *testing.F) {
	f.Add("k", "\xffk")
	f.Add(strings.Repeat("k", 300), strings.Repeat("k", 299)+"l")
	f.Fuzz(func(t *testing.T, a, b string) {
		short, other := keyname.Short(a), keyname.Short(b)
		if len(short) > keyname.MaxShort {
			t.Errorf("%d bytes", len(short))
		}
		if (short == other) != (a == b || a == other || b == short) {
			t.Errorf("%q and %q stand for %q and %q", short, other, a, b)
		}
		if again := keyname.Short(short); again != short {
			t.Errorf("%q, and %q if it is asked for again", short, again)
		}
	})
}

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
