module github.com/go-tokenbucket/ratelimit/contrib/echoratelimit/v5

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/go-tokenbucket/ratelimit v0.0.0
	github.com/labstack/echo/v5 v5.4.4
	go.uber.org/goleak v1.3.0
)

require (
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace github.com/go-tokenbucket/ratelimit => ../../..
