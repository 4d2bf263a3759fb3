package redisstore

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// unused is a client for tests that only make keys.
type unused struct{}

func (unused) Process(context.Context, redis.Cmder) error {
	panic("a test that only makes keys has sent a command")
}

// key returns the name of a bucket in Redis.
func (s *Store) key(policy, identity string) string {
	items := []item{{policy: policy, key: keyname.ShortCharges([]store.Charge{{Key: identity}})[0].Key}}
	s.engine.keys.name(items)
	return items[0].name
}

func TestKey(t *testing.T) {
	// The hashes are those of `printf … | sha256sum` and `printf … | openssl dgst -sha256 -hmac secret`,
	// in full because a key that changes would forget its bucket.
	const hmacOfMember5 = "084948543afa23af46f195bad53a632d06fb0292296e498cf9a2a92672206991"
	for _, tt := range []struct {
		name             string
		cfg              Config
		policy, identity string
		want             string
	}{
		{"A member", Config{}, "api", "member:5", "ratelimit:{member:5}:api"},
		{"An IPv4 address", Config{}, "api", "ip:192.0.2.1", "ratelimit:{ip:192.0.2.1}:api"},
		{"An IPv6 prefix", Config{}, "api", "ip:2001:db8::/64", "ratelimit:{ip:2001:db8::/64}:api"},
		{"An e-mail address", Config{}, "api", "member:a.b+c@example.com", "ratelimit:{member:a.b+c@example.com}:api"},
		{"Joined keys", Config{}, "api", "join:member:5|ip:192.0.2.1%7C", "ratelimit:{join:member:5|ip:192.0.2.1%7C}:api"},
		{"Another prefix", Config{Prefix: "shop:rl"}, "api", "member:5", "shop:rl:{member:5}:api"},
		{"A policy with separators", Config{}, "api/v1:a.b_c-d", "member:5", "ratelimit:{member:5}:api/v1:a.b_c-d"},
		{"Braces", Config{}, "api", "{member}:5", "ratelimit:{a34ace46ba970d509e32ff6c0834dc3f92e9ad84f477b3df6c29189b5e37767f}:api"},
		{"A space, as in a route", Config{}, "api", "a b", "ratelimit:{c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65}:api"},
		{"A letter beyond ASCII", Config{}, "api", "köln", "ratelimit:{72903358b624f52cbea526d61506f68b2943ff6da81d9c94b931ffac00703c29}:api"},
		{"What a pattern would match", Config{}, "a*b", "member:5", "ratelimit:{member:5}:15eb0a792505b1914ccd7f8d39a6b0f1985d86b37566faf73a589ea9e8454d8b"},
		{"63 bytes stay as they are", Config{}, "api", strings.Repeat("a", 63), "ratelimit:{" + strings.Repeat("a", 63) + "}:api"},
		{"64 bytes do not", Config{}, "api", strings.Repeat("a", 64), "ratelimit:{ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb}:api"},
		{"300 bytes", Config{}, "api", strings.Repeat("a", 300), "ratelimit:{9835fa6bf4e20a9b9ea812506302e98982721a6cf8d2cae67af57129bf21ae90}:api"},
		{"A byte that no text begins with", Config{}, "api", "\xff", "ratelimit:{a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89}:api"},
		{"A secret", Config{Secret: []byte("secret")}, "api", "member:5", "ratelimit:{" + hmacOfMember5 + "}:api"},
		{"A secret hides no policy", Config{Secret: []byte("secret")}, "login", "member:5", "ratelimit:{" + hmacOfMember5 + "}:login"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ratelimit.Must(New(unused{}, tt.cfg)).key(tt.policy, tt.identity); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestTheHashOfAnIdentityIsNotTakenForAnIdentity(t *testing.T) {
	s := ratelimit.Must(New(unused{}, Config{}))
	hashed := s.key("api", "{member}:5")
	hash := hashed[strings.Index(hashed, "{")+1 : strings.Index(hashed, "}")]
	if again := s.key("api", hash); again == hashed {
		t.Errorf("%q and %q are both %q", "{member}:5", hash, again)
	}
}

func TestChangingTheSecretAfterwardsHasNoEffect(t *testing.T) {
	secret := []byte("secret")
	s := ratelimit.Must(New(unused{}, Config{Secret: secret}))
	before := s.key("api", "member:5")
	copy(secret, "public")
	if after := s.key("api", "member:5"); after != before {
		t.Errorf("got %q, before %q", after, before)
	}
}

// keyForm is what Redis, a cluster and a terminal can do with a key: one pair of braces, which hold something
// and thus name the slot, and nothing but printable ASCII without what a pattern would match.
var keyForm = regexp.MustCompile(`^ratelimit:\{[^{}*?\\^\[\] ]{1,64}\}:[^{}*?\\^\[\] ]{1,64}$`)

func FuzzKey(f *testing.F) {
	stores := []*Store{ratelimit.Must(New(unused{}, Config{})), ratelimit.Must(New(unused{}, Config{Secret: []byte("secret")}))}
	f.Fuzz(func(t *testing.T, policy, identity, otherPolicy, otherIdentity string) {
		same := policy == otherPolicy && identity == otherIdentity
		for _, s := range stores {
			key, other := s.key(policy, identity), s.key(otherPolicy, otherIdentity)
			if same != (key == other) {
				t.Errorf("%q of %q is %q, and %q of %q is %q", policy, identity, key, otherPolicy, otherIdentity, other)
			}
			if !keyForm.MatchString(key) || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q of %q is %q", policy, identity, key)
			}
		}
		if secret := stores[1].key(policy, identity); len(identity) > 10 && strings.Contains(secret, identity) && !strings.Contains(policy, identity) {
			t.Errorf("%q shows in %q", identity, secret)
		}
	})
}
