package grpcratelimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/headers"
)

// details returns the details of an error of gRPC.
func details(t *testing.T, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		default:
			t.Errorf("detail %T", d)
		}
	}
	return retry, quota
}

// only returns the value of a name, and reports an error if it has none or several.
func only(t *testing.T, md metadata.MD, name string) string {
	t.Helper()
	values := md[name]
	if len(values) != 1 {
		t.Errorf("%s: %q", name, values)
		return ""
	}
	return values[0]
}

func TestTheSixthCallIsDenied(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			conn, _ := serve(t, nil, limited(newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{perIP("api", ratelimit.PerHour(5))}})))
			for i := range 5 {
				r := call(t, conn, k)
				if r.err != nil {
					t.Fatalf("call %d: %v", i+1, r.err)
				}
				if only(t, r.header, "x-ratelimit-limit") != "5" || only(t, r.header, "x-ratelimit-remaining") != strconv.Itoa(4-i) {
					t.Errorf("call %d: %v", i+1, map[string][]string(r.header))
				}
				only(t, r.header, "x-ratelimit-reset")
				if len(r.trailer) != 0 || r.header["retry-after"] != nil || r.header["cache-control"] != nil {
					t.Errorf("call %d: %v, trailer %v", i+1, r.header, r.trailer)
				}
			}

			r := call(t, conn, k)
			if r.code() != codes.ResourceExhausted || status.Convert(r.err).Message() != "rate limit exceeded" || r.messages != 0 {
				t.Errorf("sixth call: %v, %d messages", r.err, r.messages)
			}
			if len(r.header) > 0 {
				t.Errorf("sixth call with header %v: a retry policy ignores it", map[string][]string(r.header))
			}
			if only(t, r.trailer, "x-ratelimit-limit") != "5" || only(t, r.trailer, "x-ratelimit-remaining") != "0" || only(t, r.trailer, "retry-after") != "720" || r.trailer["cache-control"] != nil {
				t.Errorf("sixth call: %v", map[string][]string(r.trailer))
			}
			only(t, r.trailer, "x-ratelimit-reset")
			pushback, err := strconv.Atoi(only(t, r.trailer, "grpc-retry-pushback-ms"))
			if after := time.Duration(pushback) * time.Millisecond; err != nil || after > 12*time.Minute || after < 11*time.Minute {
				t.Errorf("pushback %v", after)
			}
			retry, quota := details(t, r.err)
			if d := retry.GetRetryDelay().AsDuration(); d > 12*time.Minute || d < 11*time.Minute {
				t.Errorf("RetryInfo %v", d)
			}
			if len(quota.GetViolations()) != 1 || quota.Violations[0].QuotaId != "api" {
				t.Errorf("QuotaFailure %v", quota)
			}
		})
	}
}

func TestEachRefusalHasItsCode(t *testing.T) {
	secret := errors.New("the secret")
	key := func(err error) ratelimit.KeyFunc {
		return func(*http.Request) (string, error) { return "", err }
	}
	closed := perIP("api", ratelimit.PerHour(5))
	closed.FailClosed = true
	for _, c := range []struct {
		name     string
		policy   ratelimit.Policy
		cfg      ratelimit.Config
		code     codes.Code
		pushback string
	}{
		{"no key", ratelimit.Policy{Key: key(fmt.Errorf("%w: %w", ratelimit.ErrNoKey, secret))}, ratelimit.Config{}, codes.PermissionDenied, "-1"},
		{"bad request", ratelimit.Policy{Key: key(fmt.Errorf("%w: %w", ratelimit.ErrBadRequest, secret))}, ratelimit.Config{}, codes.InvalidArgument, "-1"},
		{"key fails", ratelimit.Policy{Key: key(secret)}, ratelimit.Config{}, codes.Unavailable, "5000"},
		{"FailClosed", closed, ratelimit.Config{Store: failing{secret}}, codes.Unavailable, "5000"},
		{"fail open", perIP("api", ratelimit.PerHour(5)), ratelimit.Config{Store: failing{secret}}, codes.OK, ""},
		{"denied", ratelimit.Policy{Key: func(*http.Request) (string, error) { return "the secret", nil }}, ratelimit.Config{Store: denying(1500400 * time.Microsecond)}, codes.ResourceExhausted, "1501"},
		{"never", perIP("api", ratelimit.PerHour(5)), ratelimit.Config{Store: denying(ratelimit.Never)}, codes.ResourceExhausted, "-1"},
	} {
		c.policy.Name, c.policy.Limit = "api", ratelimit.PerHour(5)
		conn, _ := serve(t, nil, limited(newLimiter(t, c.cfg), c.policy))
		for _, k := range kinds {
			r := call(t, conn, k)
			if r.code() != c.code {
				t.Errorf("%s, %s: %v", c.name, k, r.err)
			}
			if got := strings.Join(r.trailer["grpc-retry-pushback-ms"], ","); got != c.pushback {
				t.Errorf("%s, %s: pushback %q", c.name, k, got)
			}
			retry, _ := details(t, r.err)
			if want := map[string]time.Duration{"5000": 5 * time.Second, "1501": 1500400 * time.Microsecond}[c.pushback]; (retry != nil) != (want > 0) || retry.GetRetryDelay().AsDuration() != want {
				t.Errorf("%s, %s: RetryInfo %v, want %v", c.name, k, retry, want)
			}
			all, _ := proto.Marshal(status.Convert(r.err).Proto())
			if shown := fmt.Sprint(r.err, string(all), map[string][]string(r.header), map[string][]string(r.trailer)); strings.Contains(shown, "secret") {
				t.Errorf("%s, %s: the client sees %q", c.name, k, shown)
			}
		}
	}
}

// A policy that denies is named, a Hidden one and a Shadow are not.
func TestTheViolatedPoliciesAreNamed(t *testing.T) {
	policies := []ratelimit.Policy{perIP("a", ratelimit.PerHour(1)), perIP("b", ratelimit.PerHour(2)), perIP("c", ratelimit.PerHour(1)), perIP("d", ratelimit.PerHour(1)), perIP("e", ratelimit.PerHour(1))}
	policies[3].Hidden, policies[4].Shadow = true, true
	conn, _ := serve(t, nil, limited(newLimiter(t, ratelimit.Config{Policies: policies})))
	call(t, conn, unary)
	_, quota := details(t, call(t, conn, unary).err)
	var names []string
	for _, v := range quota.GetViolations() {
		names = append(names, v.QuotaId)
		if v.Subject != "policy:"+v.QuotaId || v.Description == "" {
			t.Errorf("violation %v", v)
		}
	}
	if !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("violations %q", names)
	}
}

func TestSkipReloadAndShadow(t *testing.T) {
	api := perIP("api", ratelimit.PerHour(1))
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{api},
		Skip:     func(r *http.Request) bool { return r.Header.Get("Exempt") != "" },
	})
	conn, _ := serve(t, nil, limited(l))
	for _, k := range kinds {
		if r := call(t, conn, k, "exempt", "yes"); r.err != nil || r.header["x-ratelimit-limit"] != nil {
			t.Errorf("%s that is exempt: %v, %v", k, r.err, r.header)
		}
	}
	if r := call(t, conn, unary); r.err != nil {
		t.Error(r.err)
	}
	if r := call(t, conn, duplex); r.code() != codes.ResourceExhausted {
		t.Error(r.err)
	}
	api.Limit = ratelimit.PerHour(1).WithBurst(100)
	api.Shadow = true
	if err := l.Reload(api); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if r := call(t, conn, k); r.err != nil || r.header["x-ratelimit-limit"] != nil {
			t.Errorf("%s in the shadow: %v, %v", k, r.err, r.header)
		}
	}
}

// Headers of other formats are metadata, too.
func TestOtherHeaders(t *testing.T) {
	l := newLimiter(t, ratelimit.Config{Headers: headers.Join(headers.IETF, ratelimit.XRateLimit)})
	policy := perIP("api", ratelimit.Every(20*time.Millisecond))
	policy.MaxWait = time.Minute
	conn, _ := serve(t, nil, limited(l, policy))
	for _, k := range kinds {
		r := call(t, conn, k)
		for range 100 { // on a busy machine, the next token may come before the next call
			if len(r.header.Get("x-ratelimit-waited")) > 0 {
				break
			}
			r = call(t, conn, k)
		}
		if r.err != nil {
			t.Error(r.err)
		}
		for _, name := range []string{"ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-waited"} {
			only(t, r.header, name)
		}
	}
}
