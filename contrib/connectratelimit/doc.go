// Package connectratelimit limits calls of Connect, gRPC and gRPC-Web in handlers of [connectrpc.com/connect], with the
// policies of package ratelimit.
//
//	limits := connectratelimit.New(limiter, connectratelimit.Config{})
//	mux.Handle(authv1connect.NewAuthServiceHandler(service,
//		connect.WithInterceptors(
//			limits.Interceptor(),      // Config.Policies of limiter
//			limits.Interceptor(login), // and another policy
//		)))
//
// A program to try is in https://github.com/go-tokenbucket/ratelimit/tree/main/contrib/connectratelimit/example.
//
// Mount the first interceptor of limits inside of those that log and authenticate.
//
// # What a policy sees
//
// The functions of a policy get an http.Request with the headers, the peer and the context of the call. So
// [ratelimit.RemoteIP], [ratelimit.ClientIP], [ratelimit.Header], [ratelimit.ContextKey] and keys from tokens work as
// they do with net/http. Path and pattern are the procedure: [ratelimit.Route] returns "route:/acme.auth.v1.AuthService/Login".
// The method is POST, or GET for a unary call of Connect by GET. A query is in URL, with the message of a GET.
//
// In a handler, [ratelimit.FromContext] and [ratelimit.SetCost] take the context of the call.
//
// # What a client gets
//
//	RESOURCE_EXHAUSTED  a policy denied the call, with the details RetryInfo and QuotaFailure
//	PERMISSION_DENIED   it has no key
//	INVALID_ARGUMENT    its key is malformed or ambiguous
//	UNAVAILABLE         the store failed and a policy sets FailClosed, or a function of a policy failed; with RetryInfo
//	CANCELED            the client left while the call waited
//	DEADLINE_EXCEEDED   its time passed
//
// The texts are fixed. Config.Deny and Config.Error of the limiter are not called. RetryInfo has the exact time, and is
// left out if the call can never succeed. QuotaFailure has a violation for each policy that denied, except for Hidden
// ones, with the name as its quota_id.
//
// Callers of one key in parallel, which all wait for the time in RetryInfo, come back at the same time, for one token. Set
// [ratelimit.Policy.MaxWait], with which their calls wait in the server, in turn.
//
// Rate limit headers are headers of the response. Those of a denial are headers for a unary call of Connect, whose
// status is 429, and trailers in all other cases. Connect clients find both in Error.Meta.
//
// # Settle
//
// [ratelimit.Policy.Settle] gets the HTTP status of the code, as google/rpc/code.proto lists them: 200 for OK, 401 for
// UNAUTHENTICATED. So [ratelimit.FailedLogins] refunds calls without an error. A handler that answers a failed login
// with a message must call SetCost. A stream is settled when its handler returns. Bytes is the size of the messages that
// were sent, before compression. A panic counts as failed. Inside of [connect.WithRecover] the limiter sees the panic,
// outside of it the error.
//
// # Calls, messages and gates
//
// [Limiter.Interceptor] decides once for each call. It decides about a stream before its first message, but about a
// unary call when Connect has read the message. [Limiter.Gate] decides before that, and [Limiter.Messages] about each
// message of a stream.
//
// Limits around the handlers, by Handler or Limit of the [ratelimit.Limiter], also count unknown procedures and malformed
// requests, which no interceptor sees. Their denials are HTTP responses. Set [ratelimit.Config.Deny] to a
// denial.Handler with GRPC for gRPC clients.
//
// # What Connect makes impossible
//
//   - Retry policies of gRPC clients, such as those in a service config, act only on a response that has nothing but
//     trailers. A handler of Connect cannot send one over gRPC. A limit around the handlers can, with GRPC of
//     denial.Handler. Connect clients have no retry policy.
//   - The TLS state is not known to an interceptor. Authenticate by certificate in net/http middleware, and use
//     ContextKey.
//   - An error after the interceptor, such as a response that is larger than WithSendMaxBytes, is not seen. The call
//     counts as OK.
//   - The headers of limits around the handlers cannot be replaced from inside. With those, a call has the headers of the
//     outer policies only, and Retry-After.
//   - With HTTP/1.1, the server does not notice that a client leaves before it has read the message. So a stream or a
//     call at a gate waits to its end for tokens.
package connectratelimit
