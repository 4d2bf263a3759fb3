package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

const (
	// leastPause is the shortest time between two requests to the key server, whatever tokens arrive.
	leastPause = 10 * time.Second

	// mostPause is the time after which the keys are fetched without another reason. A key that the issuer has
	// removed stays in force for this long.
	mostPause = 15 * time.Minute

	fetchTimeout = 10 * time.Second
	maxSet       = 1 << 20 // bytes
)

// A keyring caches the keys of a key server. It fetches them in the background. The last good keys stay in force
// while the key server is slow, hangs or sends invalid data.
type keyring struct {
	url     string
	client  *http.Client
	keys    atomic.Pointer[[]jose.JSONWebKey]
	missed  chan struct{} // has room for one: a token came with an unknown key
	fetched func(error)   // called after each attempt
}

func newKeyring(url string) *keyring {
	return &keyring{
		url:     url,
		client:  &http.Client{Timeout: fetchTimeout},
		missed:  make(chan struct{}, 1),
		fetched: func(error) {},
	}
}

var errNoSuchKey = errors.New("the key server has not shown such a key")

// find is a jwtkey.Config.Keyfunc. It uses the cached keys only. If a key is missing, it requests a fetch and does
// not wait: the member counts as a guest until the key has arrived.
func (k *keyring) find(_ context.Context, token *jwt.Token) (any, error) {
	kid, _ := token.Header["kid"].(string)
	if keys := k.keys.Load(); keys != nil {
		for _, key := range *keys {
			if key.KeyID == kid && (key.Algorithm == "" || key.Algorithm == token.Method.Alg()) {
				return key.Key, nil
			}
		}
	}
	select {
	case k.missed <- struct{}{}:
	default:
	}
	return nil, errNoSuchKey
}

// keepUp fetches the keys at once, then every mostPause, and earlier if a key was missing, but at most once in
// leastPause. It returns when ctx ends.
func (k *keyring) keepUp(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.fetch(ctx)
		k.fetched(err)
		if !pause(ctx, leastPause, nil) || err != nil {
			continue
		}
		pause(ctx, mostPause-leastPause, k.missed)
	}
}

// pause returns after d, or when enough receives. It reports false if ctx has ended.
func pause(ctx context.Context, d time.Duration, enough <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-enough:
	case <-timer.C:
	}
	return true
}

func (k *keyring) fetch(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return err
	}
	response, err := k.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the key server answered %q", response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSet+1))
	if err != nil {
		return fmt.Errorf("reading the keys: %w", err)
	}
	if len(text) > maxSet {
		return fmt.Errorf("the key set is longer than %d bytes", maxSet)
	}
	keys, err := parse(text)
	if err != nil {
		return err
	}
	k.keys.Store(&keys)
	return nil
}

// parse returns the keys of a set (RFC 7517) that can verify signatures. It leaves out other keys, as section 5
// requires.
func parse(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(text) == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no key to verify a signature with")
	}
	return keys, nil
}
