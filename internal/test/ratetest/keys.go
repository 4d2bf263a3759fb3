package ratetest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-tokenbucket/ratelimit"
)

// RequestWith returns a request with header lines, given as pairs of name and value. Names may repeat.
func RequestWith(lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i < len(lines); i += 2 {
		r.Header.Add(lines[i], lines[i+1])
	}
	return r
}

// BadRequest stands for ErrBadRequest where a test wants a key.
const BadRequest = "ErrBadRequest"

// CheckKey checks that f finds the key want. If want is "", f must return ErrNoKey only. If want is BadRequest, f
// must return ErrBadRequest only.
func CheckKey(t *testing.T, f ratelimit.KeyFunc, r *http.Request, want string) {
	t.Helper()
	got, err := f(r)
	switch {
	case want == BadRequest:
		if got != "" || !errors.Is(err, ratelimit.ErrBadRequest) || errors.Is(err, ratelimit.ErrNoKey) {
			t.Errorf("got key %.200q, error %v; want ErrBadRequest", got, err)
		}
	case errors.Is(err, ratelimit.ErrBadRequest):
		t.Errorf("got key %.200q, error %v; want key %.200q", got, err, want)
	case want == "" && (got != "" || !errors.Is(err, ratelimit.ErrNoKey)):
		t.Errorf("got key %.200q, error %v; want ErrNoKey", got, err)
	case want != "" && (got != want || err != nil):
		t.Errorf("got key %.200q, error %v; want key %.200q", got, err, want)
	}
}

// CheckPanic checks that f panics with a text that holds all of wants.
func CheckPanic(t *testing.T, f func(), wants ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		value := recover()
		if value == nil {
			t.Errorf("did not panic; want a panic about %q", wants)
			return
		}
		CheckText(t, fmt.Sprint(value), wants...)
	}()
	f()
}

// Err returns the error of a constructor.
func Err[T any](_ T, err error) error { return err }

// CheckText checks that text holds all of wants.
func CheckText(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("got text %q; want it to say %q", text, want)
		}
	}
}

// Finds returns a KeyFunc with a fixed answer.
func Finds(key string, err error) ratelimit.KeyFunc {
	return func(*http.Request) (string, error) { return key, err }
}

// NoKey is a KeyFunc that finds no key.
func NoKey(*http.Request) (string, error) { return "", ratelimit.ErrNoKey }

// RequestFrom returns a request of a TCP peer with header lines.
func RequestFrom(peer string, lines ...string) *http.Request {
	r := RequestWith(lines...)
	r.RemoteAddr = peer
	return r
}

// TCP peers.
const (
	Proxy    = "10.0.0.1:80"
	Stranger = "198.51.100.1:1234"
)

// Ours are the networks of Proxy.
var Ours = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
