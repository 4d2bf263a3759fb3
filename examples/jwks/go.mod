module github.com/go-tokenbucket/ratelimit/examples/jwks

go 1.26.0

require (
	github.com/go-jose/go-jose/v4 v4.1.8
	github.com/go-tokenbucket/ratelimit v0.0.0
	github.com/golang-jwt/jwt/v5 v5.3.1
)

require (
	github.com/go-chi/chi/v5 v5.5.0 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
)

replace github.com/go-tokenbucket/ratelimit => ../..
