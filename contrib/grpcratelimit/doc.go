// Package grpcratelimit limits the calls of a gRPC server, with the policies of package
// [github.com/go-tokenbucket/ratelimit]:
//
//	limits := grpcratelimit.New(limiter, grpcratelimit.Config{})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, limits.Unary()),
//		grpc.ChainStreamInterceptor(authenticateStream, limits.Stream(), limits.Messages(perMessage)),
//	)
//
// A program to try is in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/grpcratelimit/example.
//
// [ratelimit.FromContext] and [ratelimit.SetCost] work with the context of a handler.
//
// # Keys
//
// Key functions, Cost, LimitFunc and Skip get an [net/http.Request] with the call's metadata as headers, and its method:
//
//	peer                     ratelimit.RemoteIP(), or ClientIP behind a proxy
//	metadata                 ratelimit.Header("X-Api-Key"), jwtkey
//	authenticated identity   ratelimit.ContextKey, for what an interceptor before has put into the context
//	full method              ratelimit.Route(): "route:/pkg.Service/Method"
//	TLS                      r.TLS, with the certificates of the client
//
// Binary metadata is left out. The method is always POST, and the body is empty. All methods of an
// UnknownServiceHandler have the key "route:unmatched", because clients make them up. So have streams of a service that
// is registered as nil.
//
// # Responses
//
// An allowed call gets the rate limit headers as metadata, in the header of the response. Everything else is an error
// with a fixed text, and the headers are in its trailer. [ratelimit.Config.Deny] and [ratelimit.Config.Error] are not
// called.
//
//	denied                   RESOURCE_EXHAUSTED, with RetryInfo and a QuotaFailure that names the policies
//	no key                   PERMISSION_DENIED
//	bad request              INVALID_ARGUMENT
//	FailClosed               UNAVAILABLE, with RetryInfo
//	the client has left      CANCELLED or DEADLINE_EXCEEDED
//
// # Retries
//
// The trailer of a denial has grpc-retry-pushback-ms. A client with a retry policy for RESOURCE_EXHAUSTED uses this time
// as its backoff. If the call can never succeed, the number is -1, and the client does not retry. The retry policy of
// grpc-go waits even if the deadline of the call is earlier. The call then ends with DEADLINE_EXCEEDED.
//
// Set [ratelimit.Policy.MaxWait] if one key has several callers in parallel. Their calls then wait in the server, in turn.
// Without it, all denied callers come back at the same time, for one token. Measured with four callers that made 60 calls
// without a pause, at one token each 100 ms:
//
//	maxAttempts 3                                           31 calls denied
//	maxAttempts 5, the most that grpc-go makes by default   16
//	maxAttempts 3, and UnaryClient with the same limit       1
//	a MaxWait of 1 s                                         0
//
// # Settle
//
// A [ratelimit.Policy.Settle] gets the HTTP status of the code, as google/rpc/code.proto has it: 200 for OK, 401 for
// UNAUTHENTICATED, 500 for a plain error. So [ratelimit.FailedLogins] counts calls that end with an error. A handler that
// answers a failed login with OK must call SetCost. The limiter sees the error that the interceptors inside it return.
// Bytes is the size of the messages that were sent, without compression, if they are of protobuf.
//
// # Clients
//
// [UnaryClient] and [StreamClient] are for the other side: they keep the calls that a service makes within the quota of the
// server that it calls, with package [github.com/go-tokenbucket/ratelimit/outbound].
//
// # Not possible
//
//   - An interceptor does not see calls of unknown methods without an UnknownServiceHandler. gRPC answers them itself.
//   - gRPC receives and decodes the message of a unary call before the interceptor runs. Bound its size with
//     [grpc.MaxRecvMsgSize].
//   - Under [grpc.Server.ServeHTTP], a denial cannot make grpc-go retry, because grpc-go sends it in two parts. Put the
//     limiter of net/http around it there, with denial.Handler{GRPC: true} as Deny.
//   - If a handler calls grpc.SendHeader itself, the headers of the limiter are in the trailer.
//   - After its first message a stream is not retried by a client, so a message that is denied ends it.
package grpcratelimit
