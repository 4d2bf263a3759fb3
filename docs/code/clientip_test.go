package code_test

import (
	"net/http/httptest"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// checkClient serves a request from a TCP peer with header lines, of a name and a value each. want is the key, or "" if there is none.
func checkClient(t *testing.T, key ratelimit.KeyFunc, peer, want string, header ...string) {
	t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if got, err := key(r); got != want {
		t.Errorf("from %s with %q: key %q, error %v; want %q", peer, header, got, err, want)
	}
}
