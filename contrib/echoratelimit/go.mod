module github.com/go-tokenbucket/ratelimit/contrib/echoratelimit

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/go-tokenbucket/ratelimit v0.0.0
	github.com/labstack/echo/v4 v4.16.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/labstack/gommon v0.5.0 // indirect
	github.com/mattn/go-colorable v0.1.16 // indirect
	github.com/mattn/go-isatty v0.0.22 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace github.com/go-tokenbucket/ratelimit => ../..
