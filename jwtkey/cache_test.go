package jwtkey_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

// A keyServer is a Keyfunc that counts how often it is asked, which is how often a signature is checked.
type keyServer struct {
	secret any
	err    error
	asked  int
}

func (s *keyServer) config() jwtkey.Config { return s.sized(0) }

func (s *keyServer) sized(cacheSize int) jwtkey.Config {
	return jwtkey.Config{Methods: []string{"HS256"}, CacheSize: cacheSize, Keyfunc: func(context.Context, *jwt.Token) (any, error) {
		s.asked++
		return s.secret, s.err
	}}
}

// checkAsked checks that want signatures were checked since the last time.
func (s *keyServer) checkAsked(t *testing.T, want int) {
	t.Helper()
	if s.asked != want {
		t.Errorf("%d signatures were checked; want %d", s.asked, want)
	}
	s.asked = 0
}

func TestAVerifiedTokenIsRememberedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		sub := ratelimit.Must(jwtkey.New(keys.config())).Claim("sub")
		r := bearer(hs256(valid(`"sub": "5"`)))
		for range 3 {
			checkKey(t, sub, r, "member:5")
			keys.checkAsked(t, 1)
			time.Sleep(time.Minute - time.Nanosecond)
			checkKey(t, sub, r, "member:5")
			keys.checkAsked(t, 0)
			time.Sleep(time.Nanosecond)
		}
	})
}

func TestClaimsAndClaimOfEveryNameShareWhatIsRemembered(t *testing.T) {
	keys := keyServer{secret: hmacSecret}
	members := ratelimit.Must(jwtkey.New(keys.config()))
	r := bearer(hs256(valid(`"sub": "5", "org": 7`)))
	checkKey(t, members.Claim("sub"), r, "member:5")
	checkKey(t, members.Claim("org"), r, "member:7")
	checkKey(t, members.Claim("plan"), r, "")
	if claims, err := members.Claims(r); err != nil || claims["sub"] != "5" {
		t.Errorf("got claims %v, error %v", claims, err)
	}
	keys.checkAsked(t, 1)
}

func TestARememberedTokenEndsWithItsExp(t *testing.T) {
	for _, tt := range []struct {
		leeway, after time.Duration
		want          string
		asked         int
	}{
		{0, 30*time.Second - 1, "member:5", 0},
		{0, 30 * time.Second, "", 1},
		{20 * time.Second, 30*time.Second - 1, "member:5", 0},
		{20 * time.Second, 30 * time.Second, "member:5", 1}, // the leeway is not remembered
		{20 * time.Second, 50*time.Second - 1, "member:5", 1},
		{20 * time.Second, 50 * time.Second, "", 1},
	} {
		t.Run(fmt.Sprint(tt.leeway, " ", tt.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys := keyServer{secret: hmacSecret}
				cfg := keys.config()
				cfg.Leeway = tt.leeway
				sub := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
				r := bearer(hs256(`{"sub": "5", "exp": ` + at(30*time.Second) + `}`))
				checkKey(t, sub, r, "member:5")
				keys.checkAsked(t, 1)
				time.Sleep(tt.after)
				checkKey(t, sub, r, tt.want)
				keys.checkAsked(t, tt.asked)
			})
		})
	}
}

func TestATokenInItsLeewayIsNotRemembered(t *testing.T) {
	keys := keyServer{secret: hmacSecret}
	cfg := keys.config()
	cfg.Leeway = time.Hour
	sub := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
	r := bearer(hs256(`{"sub": "5", "exp": ` + at(-time.Minute) + `}`))
	for range 3 {
		checkKey(t, sub, r, "member:5")
		keys.checkAsked(t, 1)
	}
}

func TestATokenThatIsNotValidIsNotRemembered(t *testing.T) {
	crit := sign(jwt.SigningMethodHS256, hmacSecret, `{"alg": "HS256", "crit": ["exp"]}`, valid(`"sub": "5"`))
	forged := sign(jwt.SigningMethodHS256, []byte("another"), `{"alg": "HS256"}`, valid(`"sub": "5"`))
	for name, token := range map[string]string{
		"Another secret":      forged,
		"An exp in the past":  hs256(`{"sub": "5", "exp": ` + at(-time.Second) + `}`),
		"No exp":              hs256(`{"sub": "5"}`),
		"A crit header":       crit,
		"Another issuer":      hs256(valid(`"sub": "5", "iss": "https://another"`)),
		"Beginning in a year": hs256(`{"sub": "5", "iss": "https://issuer", "exp": ` + at(9000*time.Hour) + `, "nbf": ` + at(8760*time.Hour) + `}`),
	} {
		t.Run(name, func(t *testing.T) {
			keys := keyServer{secret: hmacSecret}
			cfg := keys.config()
			cfg.Issuer = "https://issuer"
			sub := ratelimit.Must(jwtkey.New(cfg)).Claim("sub")
			for range 3 {
				checkKey(t, sub, bearer(token), "")
				keys.checkAsked(t, 1)
			}
		})
	}
}

func TestATokenIsBelievedAsSoonAsItIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{err: errors.New("the key server is away")}
		sub := ratelimit.Must(jwtkey.New(keys.config())).Claim("sub")
		r := bearer(hs256(valid(`"sub": "5", "nbf": ` + at(10*time.Second))))
		checkKey(t, sub, r, "")
		keys.secret, keys.err = hmacSecret, nil
		checkKey(t, sub, r, "")
		time.Sleep(10 * time.Second)
		checkKey(t, sub, r, "member:5")
	})
}

func TestATokenOfARevokedKeyCountsForAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		sub := ratelimit.Must(jwtkey.New(keys.config())).Claim("sub")
		r := bearer(hs256(valid(`"sub": "5"`)))
		checkKey(t, sub, r, "member:5")
		keys.secret = []byte("the next")
		time.Sleep(time.Minute - 1)
		checkKey(t, sub, r, "member:5") // which does not begin another minute
		time.Sleep(time.Nanosecond)
		checkKey(t, sub, r, "")
	})
}

func TestATokenIsRememberedAsAWhole(t *testing.T) {
	sub := ratelimit.Must(jwtkey.New(hs256Config())).Claim("sub")
	token := hs256(valid(`"sub": "5"`))
	parts := strings.Split(token, ".")
	checkKey(t, sub, bearer(token), "member:5")
	for _, other := range []string{
		token + ".", token + "A", token[:len(token)-1], parts[0] + "." + segment(valid(`"sub": "6"`)) + "." + parts[2],
		segment(`{"alg": "none"}`) + "." + parts[1] + "." + parts[2], strings.ToUpper(token),
	} {
		checkKey(t, sub, bearer(other), "")
	}
}

func TestNoneIsRememberedWithANegativeCacheSize(t *testing.T) {
	keys := keyServer{secret: hmacSecret}
	members := ratelimit.Must(jwtkey.New(keys.sized(-1)))
	sub := members.Claim("sub")
	r := bearer(hs256(valid(`"sub": "5"`)))
	checkKey(t, sub, r, "member:5")
	checkKey(t, sub, r, "member:5")
	keys.checkAsked(t, 2)
	if got := members.Stats(); got != (store.CacheStats{}) {
		t.Errorf("%+v, want none", got)
	}
}

func TestTokensThatAreSeenOnceDoNotDriveOutOneThatIsSeenOften(t *testing.T) {
	keys := keyServer{secret: hmacSecret}
	sub := ratelimit.Must(jwtkey.New(keys.sized(10))).Claim("sub")
	often := bearer(hs256(valid(`"sub": "5"`)))
	for range 2 { // to be used, it must have come before
		checkKey(t, sub, often, "member:5")
	}
	for i := range 100 {
		checkKey(t, sub, bearer(hs256(valid(fmt.Sprintf(`"sub": "other-%d"`, i)))), fmt.Sprintf("member:other-%d", i))
		checkKey(t, sub, often, "member:5")
	}
	keys.checkAsked(t, 101)
}

func TestChangingClaimsChangesThoseOfNobodyElse(t *testing.T) {
	members := ratelimit.Must(jwtkey.New(hs256Config()))
	r := bearer(hs256(`{"exp": 9999999999, "sub": "5", "plan": {"name": "gold", "limits": [1, {"a": ["b"]}]}, "roles": ["a", null, true]}`))
	const want = `map[exp:9999999999 plan:map[limits:[1 map[a:[b]]] name:gold] roles:[a <nil> true] sub:5]`
	for range 3 { // at first verified, then remembered
		claims, err := members.Claims(r)
		if got := fmt.Sprint(map[string]any(claims)); err != nil || got != want {
			t.Fatalf("got claims %s, error %v; want %s", got, err, want)
		}
		plan := claims["plan"].(map[string]any)
		limits := plan["limits"].([]any)
		limits[1].(map[string]any)["a"].([]any)[0] = "changed"
		limits[0], plan["name"], claims["roles"].([]any)[0] = "changed", "changed", "changed"
		claims["sub"], claims["new"] = "6", "new"
		delete(claims, "exp")
		checkKey(t, members.Claim("sub"), r, "member:5")
	}
}

func TestRequestsOfOneTokenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := hs256Config()
		cfg.CacheSize = 3
		members := ratelimit.Must(jwtkey.New(cfg))
		sub := members.Claim("sub")
		var tokens []string
		for i := range 5 {
			tokens = append(tokens, hs256(`{"exp": `+at(time.Duration(i+1)*time.Minute)+fmt.Sprintf(`, "sub": "%d", "roles": ["a"]}`, i)))
		}
		var crowd sync.WaitGroup
		for range 8 {
			crowd.Go(func() {
				for i := range testsize.Of(100, 500) {
					n := i % len(tokens)
					checkKey(t, sub, bearer(tokens[n]), fmt.Sprintf("member:%d", n))
					claims, err := members.Claims(bearer(tokens[n]))
					if err != nil || fmt.Sprint(claims["roles"]) != "[a]" {
						t.Errorf("got claims %v, error %v", claims, err)
						return
					}
					claims["roles"].([]any)[0], claims["sub"] = "changed", "changed"
				}
			})
		}
		crowd.Wait()
	})
}

func TestStatsCountTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		members := ratelimit.Must(jwtkey.New(keys.sized(2)))
		sub := members.Claim("sub")
		want := func(want store.CacheStats) {
			t.Helper()
			want.Max = 2
			if got := members.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		of := func(member string) string { return hs256(valid(`"sub": "` + member + `"`)) }
		want(store.CacheStats{})
		checkKey(t, sub, requestWith(), "") // no token, so nothing to look for
		want(store.CacheStats{})
		checkKey(t, sub, bearer("forged."+of("5")), "")
		checkKey(t, sub, bearer(of("5")), "member:5")
		want(store.CacheStats{Entries: 1, Misses: 2})
		checkKey(t, sub, bearer(of("5")), "member:5")
		if _, err := members.Claims(bearer(of("5"))); err != nil {
			t.Error(err)
		}
		want(store.CacheStats{Entries: 1, Hits: 2, Misses: 2})
		checkKey(t, sub, bearer(of("6")), "member:6")
		checkKey(t, sub, bearer(of("7")), "member:7")
		want(store.CacheStats{Entries: 2, Hits: 2, Misses: 4, Evicted: 1})
		time.Sleep(time.Hour) // what has ended makes room, and was not evicted
		checkKey(t, sub, bearer(of("8")), "member:8")
		want(store.CacheStats{Entries: 2, Hits: 2, Misses: 5, Evicted: 1})
	})
}

func TestExpiredTokensAreNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		members := ratelimit.Must(jwtkey.New(keys.sized(2)))
		sub := members.Claim("sub")
		for i := range 5 {
			member := fmt.Sprint(i)
			checkKey(t, sub, bearer(hs256(valid(`"sub": "`+member+`"`))), "member:"+member)
			time.Sleep(31 * time.Second) // each is remembered for a minute at most
		}
		if s := members.Stats(); s.Evicted != 0 || s.Misses != 5 || s.Entries != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStatsAreExactUnderLoad(t *testing.T) {
	const readers, each = 8, 500
	members := ratelimit.Must(jwtkey.New(hs256Config()))
	sub, r := members.Claim("sub"), bearer(hs256(valid(`"sub": "5"`)))
	checkKey(t, sub, r, "member:5")
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for range each {
				if _, err := sub(r); err != nil {
					t.Error(err)
				}
				if s := members.Stats(); s.Misses != 1 || s.Entries != 1 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	running.Wait()
	if s := members.Stats(); s.Hits != readers*each {
		t.Errorf("%+v, want %d hits", s, readers*each)
	}
}
