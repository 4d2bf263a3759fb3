module github.com/go-tokenbucket/ratelimit/conformance

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/go-resty/resty/v2 v2.17.2
	github.com/go-tokenbucket/ratelimit v0.0.0
	github.com/gorilla/handlers v1.5.2
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/rs/cors v1.11.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/go-tokenbucket/ratelimit => ../
