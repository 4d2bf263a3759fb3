package grpcratelimit

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/go-tokenbucket/ratelimit/outbound"
)

// UnaryClient returns an interceptor for clients. It keeps unary calls within the quota of q, across all replicas. A call
// costs a token of the key "target:" and the target of its connection. The metadata of the response corrects the bucket.
//
// A call waits for its turn. If that would come too late, the call fails with RESOURCE_EXHAUSTED, and [errors.As] finds
// the [outbound.Error]. The functions of the policy of q are not called. A retry by a service config is made inside the
// interceptor and costs nothing.
func UnaryClient(q *outbound.Quota) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		options, err := wait(ctx, q, conn, options)
		if err != nil {
			return err
		}
		return invoke(ctx, method, request, reply, conn, options...)
	}
}

// StreamClient is [UnaryClient] for streams. A stream costs a token, whatever it sends.
func StreamClient(q *outbound.Quota) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		options, err := wait(ctx, q, conn, options)
		if err != nil {
			return nil, err
		}
		return open(ctx, desc, conn, method, options...)
	}
}

// wait takes a token of q, and adds options by which q learns from the end of the call.
func wait(ctx context.Context, q *outbound.Quota, conn *grpc.ClientConn, options []grpc.CallOption) ([]grpc.CallOption, error) {
	turn, err := q.Wait(ctx, "target:"+conn.CanonicalTarget(), 1)
	if err != nil {
		return nil, notSent{err}
	}
	var header, trailer metadata.MD
	learn := func(err error) { q.Report(ctx, turn, reportOf(err, header, trailer)) }
	return append(options[:len(options):len(options)], grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(learn)), nil
}

// reportOf returns what a response says about the quota. RESOURCE_EXHAUSTED alone says nothing: a client also has it for
// a message that is too large.
func reportOf(err error, mds ...metadata.MD) outbound.Report {
	response := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header)}
	for _, md := range mds {
		for name, values := range md {
			if to, ok := canonical(name); ok {
				response.Header[to] = values
			}
		}
	}
	s := status.Convert(err)
	refused := s.Code() == codes.ResourceExhausted || s.Code() == codes.Unavailable
	if refused {
		response.StatusCode = http.StatusServiceUnavailable // a limit only with a Retry-After
	}
	report, _ := outbound.Headers(response)
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && refused {
			report.Refused, report.RetryAfter = true, info.RetryDelay.AsDuration()
		}
	}
	return report
}

// A notSent is the error of a call that was not made.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

func (e notSent) GRPCStatus() *status.Status {
	code := codes.ResourceExhausted
	switch failed := errors.Unwrap(e.error); {
	case errors.Is(failed, context.Canceled):
		code = codes.Canceled
	case errors.Is(failed, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case failed != nil:
		code = codes.Unavailable
	}
	return status.New(code, e.Error())
}
