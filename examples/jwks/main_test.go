package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

const issuer = "https://issuer.example/"

// A signer is a key pair of the issuer.
type signer struct {
	kid     string
	private *ecdsa.PrivateKey
}

func newSigner(t *testing.T, kid string) signer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, private}
}

// token returns a token of a member.
func (s signer) token(t *testing.T, sub string) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": sub, "iss": issuer, "exp": time.Now().Add(time.Hour).Unix(),
	})
	token.Header["kid"] = s.kid
	text, err := token.SignedString(s.private)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// setOf returns the key set that shows signers.
func setOf(t *testing.T, signers ...signer) string {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: &s.private.PublicKey, KeyID: s.kid, Algorithm: "ES256", Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// newTestAPI returns the API on keys, and what answers a request with a token.
func newTestAPI(t *testing.T, keys *keyring) func(token string) string {
	t.Helper()
	buckets := ratelimit.Must(memstore.New(memstore.Config{}))
	t.Cleanup(func() { buckets.Close() })
	api, err := newAPI(buckets, keys, issuer)
	if err != nil {
		t.Fatal(err)
	}
	return func(token string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return strings.TrimSpace(w.Body.String())
	}
}

func check(t *testing.T, got, want string) {
	t.Helper()
	if want = "hello, " + want; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

const guest = "ip:192.0.2.1"

func TestNoRequestWaitsForAKeyServerThatHangs(t *testing.T) {
	old, next := newSigner(t, "old"), newSigner(t, "next")
	set := setOf(t, old)
	asked, answer := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answer
		io.WriteString(w, set)
	}))
	defer server.Close()
	keys := newKeyring(server.URL)
	keys.client.Timeout = 0 // it hangs for as long as the test says
	request := newTestAPI(t, keys)

	// The server has been asked and does not answer, until this test lets it: a request that waited for it
	// would never return.
	fetched := make(chan error, 1)
	fetch := func() {
		go func() { fetched <- keys.fetch(t.Context()) }()
		<-asked
	}
	fetch()
	check(t, request(old.token(t, "5")), guest)
	answer <- struct{}{}
	if err := <-fetched; err != nil {
		t.Fatal(err)
	}
	check(t, request(old.token(t, "5")), "member:5")

	// It hangs again. The last good keys stay in force, also for tokens that were not seen before.
	fetch()
	check(t, request(old.token(t, "6")), "member:6")
	check(t, request(next.token(t, "7")), guest)
	set = setOf(t, next)
	answer <- struct{}{}
	if err := <-fetched; err != nil {
		t.Fatal(err)
	}
	check(t, request(next.token(t, "7")), "member:7")
	check(t, request(old.token(t, "8")), guest)
}

func TestTheKeysAreFetchedInTheBackground(t *testing.T) {
	old := newSigner(t, "old")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, setOf(t, old))
	}))
	defer server.Close()
	keys := newKeyring(server.URL)
	fetched := make(chan error, 1)
	keys.fetched = func(err error) { fetched <- err }
	request := newTestAPI(t, keys)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		keys.keepUp(ctx)
		close(stopped)
	}()
	if err := <-fetched; err != nil {
		t.Fatal(err)
	}
	check(t, request(old.token(t, "5")), "member:5")
	stop()
	<-stopped
}

// A keyServer answers without a network, so that time can be moved.
type keyServer struct {
	asked atomic.Int64
	set   atomic.Value // of string; "" fails
}

func (s *keyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	set, _ := s.set.Load().(string)
	if set == "" {
		return nil, errors.New("the key server is away")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(set)), Request: r}, nil
}

// kept calls f with a keyring that keeps up with s, in a time that can be moved.
func (s *keyServer) kept(t *testing.T, f func(t *testing.T, request func(token string) string)) {
	synctest.Test(t, func(t *testing.T) {
		keys := newKeyring("http://keys.example/")
		keys.client.Transport = s
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go keys.keepUp(ctx)
		synctest.Wait()
		f(t, newTestAPI(t, keys))
		stop()
		synctest.Wait()
	})
}

func TestARotationIsPickedUp(t *testing.T) {
	old, next := newSigner(t, "old"), newSigner(t, "next")
	var server keyServer
	server.set.Store(setOf(t, old))
	server.kept(t, func(t *testing.T, request func(string) string) {
		check(t, request(old.token(t, "5")), "member:5")

		time.Sleep(time.Minute)
		server.set.Store(setOf(t, next))
		check(t, request(next.token(t, "6")), guest) // and leaves word
		synctest.Wait()
		check(t, request(next.token(t, "6")), "member:6")
		check(t, request(old.token(t, "7")), guest)

		// Nobody need miss a key for it to come, or to go.
		time.Sleep(leastPause)
		synctest.Wait()
		server.set.Store(setOf(t, old))
		time.Sleep(mostPause)
		synctest.Wait()
		check(t, request(old.token(t, "8")), "member:8")
		check(t, request(next.token(t, "9")), guest)
	})
}

func TestUnknownKeysDoNotMakeAFloodOfFetches(t *testing.T) {
	old := newSigner(t, "old")
	var server keyServer
	server.set.Store(setOf(t, old))
	server.kept(t, func(t *testing.T, request func(string) string) {
		for i := range 1000 { // 100 seconds
			unknown := signer{fmt.Sprint(i), old.private}
			if got := request(unknown.token(t, "5")); strings.Contains(got, "member:") {
				t.Fatalf("got %q", got)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n, most := server.asked.Load(), int64(100*time.Second/leastPause)+1; n > most || n < 2 {
			t.Errorf("the key server was asked %d times; want at most %d", n, most)
		}
	})
}

func TestAKeyServerThatIsAwayAtFirst(t *testing.T) {
	old := newSigner(t, "old")
	var server keyServer
	server.kept(t, func(t *testing.T, request func(string) string) {
		check(t, request(old.token(t, "5")), guest)
		const away = mostPause * 5 / 2
		time.Sleep(away)
		if n, most := server.asked.Load(), int64(away/leastPause)+1; n > most {
			t.Errorf("the key server was asked %d times; want at most %d", n, most)
		}
		server.set.Store(setOf(t, old))
		time.Sleep(leastPause)
		synctest.Wait()
		check(t, request(old.token(t, "5")), "member:5")
	})
}

func TestABrokenAnswerLeavesTheKeysInForce(t *testing.T) {
	old := newSigner(t, "old")
	good := setOf(t, old)
	for name, answer := range map[string]http.HandlerFunc{
		"An error":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); io.WriteString(w, good) },
		"Nothing":            func(http.ResponseWriter, *http.Request) {},
		"No JSON":            func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"An empty set":       func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"keys": []}`) },
		"Keys that are none": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"keys": [null, 5, {"kty": "new"}]}`) },
		"A secret": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"keys": [{"kty": "oct", "kid": "old", "k": "c2VjcmV0"}]}`)
		},
		"A private key": func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: old.private, KeyID: "old"}}})
		},
		"A key to encrypt": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, strings.Replace(good, `"sig"`, `"enc"`, 1))
		},
		"Too much": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, good+strings.Repeat(" ", maxSet))
		},
		"An end midway": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			io.WriteString(w, good)
		},
	} {
		t.Run(name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, good) }
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r) }))
			defer server.Close()
			keys := newKeyring(server.URL)
			request := newTestAPI(t, keys)
			if err := keys.fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			handler = answer
			if keys.fetch(t.Context()) == nil {
				t.Error("no error")
			}
			check(t, request(old.token(t, "5")), "member:5")
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// The error is logged.
func TestTheStatusOfAKeyServerIsQuoted(t *testing.T) {
	keys := newKeyring("http://keys.example/")
	keys.client.Transport = transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 500, Status: "500 \x1b[2J", Body: http.NoBody}, nil
	})
	if err := keys.fetch(t.Context()); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("error %q", err)
	}
}

func TestAKeyThatIsNotUnderstoodDoesNotHideTheOthers(t *testing.T) {
	old := newSigner(t, "old")
	set := strings.Replace(setOf(t, old), `[`, `[{"kty": "new", "kid": "old"}, `, 1)
	if keys, err := parse([]byte(set)); err != nil || len(keys) != 1 {
		t.Errorf("got %d keys, error %v", len(keys), err)
	}
}
