module github.com/go-tokenbucket/ratelimit/contrib/grpcratelimit

go 1.26.0

require (
	github.com/go-tokenbucket/ratelimit v0.0.0
	go.uber.org/goleak v1.3.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/go-chi/chi/v5 v5.5.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/go-tokenbucket/ratelimit => ../..
