package connectratelimit_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/denial"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

// Connect sends a denial for gRPC in two parts, and then a retry policy does not act. A limit around the handlers sends
// it in one.
func TestARetryPolicyObeysALimitAroundTheHandlers(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
	}}]}`
	often := perIP("often", ratelimit.Every(50*time.Millisecond))
	for name, tt := range map[string]struct {
		around bool
		want   connect.Code
	}{
		"around": {true, 0}, "interceptor": {false, connect.CodeResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			buckets := ratelimit.Must(memstore.New(memstore.Config{}))
			t.Cleanup(func() { buckets.Close() })
			limits := newLimits(t, ratelimit.Config{Store: buckets, Deny: denial.Handler{GRPC: true}})
			h := logins(echo, with(limits.Interceptor(often)))
			if tt.around {
				h = limits.Limit(often)(logins(echo))
			}
			var calls atomic.Int32
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				h.ServeHTTP(w, r)
			}))
			conn := newGRPC(t, url, grpc.WithDefaultServiceConfig(config))
			retried := false
			for range 20 { // until one is denied, which takes two calls unless the machine is slow
				before := calls.Load()
				err := conn.Invoke(t.Context(), login, wrapperspb.String("hello"), new(text))
				r := grpcReply(t, err, "", nil, nil)
				if n := calls.Load() - before; n > 1 || r.code != 0 {
					if retried = n > 1; r.code != tt.want || retried != tt.around {
						t.Errorf("%d attempts, code %v", n, r.code)
					}
					return
				}
			}
			t.Error("no call was denied")
		})
	}
}
