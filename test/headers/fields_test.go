package headers_test

import (
	"maps"
	"math"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
	"github.com/go-tokenbucket/ratelimit/store"
)

const maxInteger = 999_999_999_999_999 // of Structured Fields

// windowOf returns in how many seconds tokens are added, rounded up.
func windowOf(l ratelimit.Limit, tokens int64) int64 {
	n := new(big.Int).Mul(big.NewInt(tokens), big.NewInt(int64(l.Per)))
	d := new(big.Int).Mul(big.NewInt(l.Rate), big.NewInt(int64(time.Second)))
	n.Add(n, d).Sub(n, big.NewInt(1)).Div(n, d)
	return max(1, n.Int64())
}

// FuzzIETF compares what IETF writes with what a library of Structured Fields does, and with exact arithmetic.
func FuzzIETF(f *testing.F) {
	f.Fuzz(func(t *testing.T, name string, rate, per, burst, remaining, resetMicros, retryMicros int64) {
		limit := ratelimit.Limit{Rate: rate, Per: time.Duration(per), Burst: burst}
		compiled, err := store.NewLimit(rate, limit.Per, burst)
		l, policyErr := ratelimit.New(ratelimit.Config{Policies: []ratelimit.Policy{perIP(name, limit)}})
		if err != nil || policyErr != nil {
			return
		}
		l.Close()
		fill := compiled.Capacity/compiled.Refill + 1
		remaining = min(max(0, remaining), burst)
		s := store.State{
			Allowed:    retryMicros == 0,
			Remaining:  remaining,
			ResetAfter: time.Duration(min(max(0, resetMicros), 2*fill)) * time.Microsecond,
			RetryAfter: time.Duration(min(max(0, retryMicros), 2*fill)) * time.Microsecond,
		}
		if retryMicros < 0 {
			s.RetryAfter = ratelimit.Never
		}
		d := ratelimit.Decision{Allowed: s.Allowed, Results: []ratelimit.Result{result(name, limit, s)}}
		h := http.Header{}
		headers.IETF(h, &d)

		policy, left := httpsfv.NewItem(name), httpsfv.NewItem(name)
		policy.Params.Add("q", min(burst, maxInteger))
		policy.Params.Add("w", windowOf(limit, burst))
		switch {
		case s.RetryAfter == ratelimit.Never:
			left.Params.Add("r", 0)
		case !s.Allowed:
			left.Params.Add("r", 0)
			left.Params.Add("t", max(1, int64((s.RetryAfter+time.Second-1)/time.Second)))
		case remaining > 0:
			left.Params.Add("r", min(remaining, maxInteger))
			left.Params.Add("t", windowOf(limit, remaining))
		default: // when the bucket has one token, which it had been full that much later than
			others := new(big.Int).Mul(big.NewInt(burst-1), big.NewInt(compiled.Unit))
			spare := others.Div(others, big.NewInt(compiled.Refill)).Int64()
			next := max(0, int64(s.ResetAfter/time.Microsecond)-spare)
			left.Params.Add("r", 0)
			left.Params.Add("t", max(1, (next+999_999)/1_000_000))
		}
		for header, item := range map[string]httpsfv.Item{"RateLimit-Policy": policy, "RateLimit": left} {
			want, err := httpsfv.Marshal(httpsfv.List{item})
			if err != nil || h.Get(header) != want {
				t.Errorf("%s: %q, want %q, error %v", header, h.Get(header), want, err)
			}
			members(t, h, header)
		}
	})
}

// allDialects are all there are, in as few responses as they fit in.
var allDialects = map[string]ratelimit.HeaderFunc{
	"XRateLimit":   ratelimit.XRateLimit,
	"DeltaSeconds": headers.DeltaSeconds,
	"the others":   headers.Join(headers.IETF, headers.Spring, headers.Shadows),
}

// FuzzNamesAndKeys has names and keys of any bytes: New refuses a name, or nothing but itself comes of it, and a
// key changes nothing at all.
func FuzzNamesAndKeys(f *testing.F) {
	f.Fuzz(func(t *testing.T, name, key string) {
		if key == "" || key == "another" {
			return
		}
		byKey := func(r *http.Request) (string, error) { return r.Header.Get("Key"), nil }
		shadow := ratelimit.Policy{Name: name + "-new", Key: byKey, Limit: ratelimit.PerMinute(1), Shadow: true}
		policies := []ratelimit.Policy{{Name: name, Key: byKey, Limit: ratelimit.PerMinute(90).WithBurst(2)}, shadow}
		if l, err := ratelimit.New(ratelimit.Config{Policies: policies}); err != nil {
			return
		} else {
			l.Close()
		}
		for dialect, headers := range allDialects {
			// In a bubble no time passes between the two.
			synctest.Test(t, func(t *testing.T) {
				l := ratelimit.Must(ratelimit.New(ratelimit.Config{Policies: policies, Headers: headers}))
				defer l.Close()
				h := l.Handler(okHandler)
				for range 3 {
					got, other := get(h, with("Key", key)), get(h, with("Key", "another"))
					if !maps.EqualFunc(got.Header(), other.Header(), slices.Equal) {
						t.Fatalf("%s: the key %q makes a difference: %v, %v", dialect, key, got.Header(), other.Header())
					}
					for header, values := range got.Header() {
						for _, value := range values {
							if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
								t.Fatalf("%s: %s: %q", dialect, header, value)
							}
						}
					}
					for _, header := range []string{"RateLimit", "RateLimit-Policy"} {
						if m := members(t, got.Header(), header); m != nil && (len(m) != 1 || m[0].Name != name) {
							t.Fatalf("%s: %s has %v", dialect, header, m)
						}
					}
				}
			})
		}
	})
}

func TestNumbersOfAnySizeAreWrittenAsTheLibraryOfStructuredFieldsDoes(t *testing.T) {
	for _, n := range []int64{1, 9, 10, 99, 12345, maxInteger - 1, maxInteger, maxInteger + 1, math.MaxInt64} {
		h := http.Header{}
		r := result("api", ratelimit.Limit{Rate: n, Per: time.Second}, store.State{Allowed: true, Remaining: n})
		headers.IETF(h, &ratelimit.Decision{Allowed: true, Results: []ratelimit.Result{r}})
		if m := members(t, h, "RateLimit-Policy"); m[0].Q != min(n, maxInteger) {
			t.Errorf("%d is written as %v", n, h)
		}
	}
}
