package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

var secret = []byte("a secret of the test, 32 bytes or more")

func TestEachPlanHasItsLimit(t *testing.T) {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	defer s.Close()
	h, err := newAPI(s, secret)
	if err != nil {
		t.Fatal(err)
	}
	for plan, want := range map[string]struct {
		limit string
		text  string
	}{
		"free":       {"20", "member:5-free is allowed 60/1m burst 20\n"},
		"pro":        {"100", "member:5-pro is allowed 600/1m burst 100\n"},
		"enterprise": {"", "unlimited\n"},
		"unheard of": {"10", "member:5-unheard of is allowed 10/1m\n"},
		"":           {"10", "ip:192.0.2.1 is allowed 10/1m\n"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if plan != "" {
			token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
				"sub": "5-" + plan, "plan": plan, "exp": time.Now().Add(time.Hour).Unix(),
			}).SignedString(secret)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 || w.Header().Get("X-RateLimit-Limit") != want.limit || w.Body.String() != want.text {
			t.Errorf("%q: %d, limit %q, body %q", plan, w.Code, w.Header().Get("X-RateLimit-Limit"), w.Body)
		}
	}
}
