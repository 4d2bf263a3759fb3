package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

var secret = []byte("a secret of the test, 32 bytes or more")

func newTestAPI(t *testing.T) http.Handler {
	s := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { s.Close() })
	h, err := newAPI(s, secret)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func statuses(h http.Handler, n int, method, path, token string) (codes []int) {
	for range n {
		r := httptest.NewRequest(method, path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		codes = append(codes, w.Code)
	}
	return codes
}

func tokenOf(t *testing.T, member, org string) string {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": member, "org": org, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestLogin(t *testing.T) {
	h := newTestAPI(t)
	for range 4 {
		r := httptest.NewRequest("POST", "/login", strings.NewReader("password=sesame"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("the right password is answered %d", w.Code)
		}
	}
	if got := statuses(h, 3, "POST", "/login", ""); !slices.Equal(got, []int{401, 401, 401}) {
		t.Errorf("statuses %v", got)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
	if after, _ := strconv.Atoi(w.Header().Get("Retry-After")); w.Code != 429 || after < 14*60 || after > 15*60 {
		t.Errorf("a fourth wrong password is answered %d, and again after %d s; want 429 and about 15 minutes", w.Code, after)
	}
}

func TestSearchIsLimitedByMemberAndByOrganisation(t *testing.T) {
	h := newTestAPI(t)
	count := func(member string) (allowed int) {
		for _, code := range statuses(h, 12, "GET", "/search", tokenOf(t, member, "7")) {
			if code == 200 {
				allowed++
			}
		}
		return allowed
	}
	var total int
	for _, member := range []string{"1", "2", "3", "4", "5"} {
		if n := count(member); n != 10 {
			t.Errorf("member %s: %d allowed, want the burst of 10", member, n)
		}
		total += 10
	}
	if n := count("6"); n > 1 { // a token may have come meanwhile
		t.Errorf("member 6: %d allowed by an organisation that has used up its %d", n, total)
	}
	if got := statuses(h, 1, "GET", "/search", ""); got[0] != 403 {
		t.Errorf("without a token: %v", got)
	}
}

func TestTheRoutesOfAGroupHaveABucketEach(t *testing.T) {
	h := newTestAPI(t)
	if got := statuses(h, 6, "GET", "/admin/members/1", ""); !slices.Equal(got, []int{200, 200, 200, 200, 200, 429}) {
		t.Errorf("statuses %v", got)
	}
	if got := statuses(h, 1, "GET", "/admin/members/2", ""); got[0] != 429 {
		t.Errorf("another member, the same route: %v", got)
	}
	if got := statuses(h, 1, "GET", "/admin/reports/2026", ""); got[0] != 200 {
		t.Errorf("another route: %v", got)
	}
}

func TestHealthIsNotLimited(t *testing.T) {
	for _, code := range statuses(newTestAPI(t), 200, "GET", "/healthz", "") {
		if code != 200 {
			t.Fatal(code)
		}
	}
}
