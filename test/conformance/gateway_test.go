package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/go-tokenbucket/ratelimit"
)

// newGateway returns a gateway with what its generator would register for a unary and for a streaming method. The
// stream has what more has, and ends with it.
func newGateway(t *testing.T, more <-chan string) *runtime.ServeMux {
	t.Helper()
	mux := runtime.NewServeMux()
	register := func(path string, forward func(http.ResponseWriter, *http.Request, runtime.Marshaler)) {
		err := mux.HandlePath(http.MethodGet, path, func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
			_, out := runtime.MarshalerForRequest(mux, r)
			ctx, err := runtime.AnnotateContext(r.Context(), mux, r, "/things.Things/Get")
			if err != nil {
				runtime.HTTPError(r.Context(), mux, out, w, r, err)
				return
			}
			ctx = runtime.NewServerMetadataContext(ctx, runtime.ServerMetadata{HeaderMD: metadata.Pairs("shard", "seven")})
			forward(w, r.WithContext(ctx), out)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	register("/v1/thing", func(w http.ResponseWriter, r *http.Request, out runtime.Marshaler) {
		runtime.ForwardResponseMessage(r.Context(), mux, out, w, r, wrapperspb.String("a thing"))
	})
	register("/v1/things", func(w http.ResponseWriter, r *http.Request, out runtime.Marshaler) {
		runtime.ForwardResponseStream(r.Context(), mux, out, w, r, func() (proto.Message, error) {
			select {
			case thing, ok := <-more:
				if !ok {
					return nil, io.EOF
				}
				return wrapperspb.String(thing), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
	})
	return mux
}

func wantMetadata(t *testing.T, h http.Header) {
	t.Helper()
	if got := h.Values("Grpc-Metadata-Shard"); len(got) != 1 || got[0] != "seven" {
		t.Errorf("Grpc-Metadata-Shard is %q", got)
	}
	if got := h.Values("X-Ratelimit-Remaining"); len(got) != 1 {
		t.Errorf("X-RateLimit-Remaining is %q", got)
	}
}

func TestAGatewaysMessagePassesUnharmed(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))}})
	url := serve(t, l.Handler(newGateway(t, nil))) + "/v1/thing"
	a := send(t, url, with("Accept", "application/json"))
	if a.StatusCode != http.StatusOK || a.body != `"a thing"` || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, body %s, %v", a.StatusCode, a.body, a.Header)
	}
	wantMetadata(t, a.Header)

	a = send(t, url, with("Accept", "application/json"))
	wantDenial(t, a)
	var problem struct{ Status int }
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != http.StatusTooManyRequests {
		t.Errorf("denied: body %q, error %v", a.body, err)
	}
}

// Each message is there before the next one is made.
func TestAGatewaysStreamPassesUnharmed(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))}})
	more := make(chan string, 1)
	more <- "one"
	url := serve(t, l.Handler(newGateway(t, more))) + "/v1/things"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := new(http.Transport).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	wantMetadata(t, resp.Header)
	body := bufio.NewReader(resp.Body)
	for _, next := range []string{"two", "three", ""} {
		line, err := body.ReadString('\n')
		var message struct{ Result string }
		if err != nil || json.Unmarshal([]byte(line), &message) != nil || message.Result == "" {
			t.Fatalf("message %q, error %v", line, err)
		}
		if next != "" {
			more <- next
		}
	}
	close(more)
	if rest, err := body.ReadString('\n'); rest != "" || !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %q, error %v", rest, err)
	}
}

// Clients that are generated for a gateway expect its errors, which Deny can have it write.
func TestADenialInTheFormOfAGatewaysErrors(t *testing.T) {
	t.Parallel()
	mux := newGateway(t, nil)
	l := newLimiter(t, ratelimit.Config{
		Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))},
		Deny: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, out := runtime.MarshalerForRequest(mux, r)
			runtime.HTTPError(r.Context(), mux, out, w, r, status.Error(codes.ResourceExhausted, "too many requests"))
		}),
	})
	url := serve(t, l.Handler(mux)) + "/v1/thing"
	send(t, url)
	a := send(t, url)
	wantDenial(t, a)
	var body struct {
		Code    codes.Code
		Message string
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Code != codes.ResourceExhausted || body.Message != "too many requests" {
		t.Errorf("body %q, error %v", a.body, err)
	}
}
