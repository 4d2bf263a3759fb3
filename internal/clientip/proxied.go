package clientip

import (
	"net/http"

	"github.com/go-tokenbucket/ratelimit/internal/requestheader"
)

// ProxyHeaders are the headers that show that a request came through a proxy.
var ProxyHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via", "X-Forwarded-Proto", "X-Forwarded-Host",
	"Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
}

// CameThroughProxy reports whether r has a header that proxies add. A proxy that adds none stays unknown.
func CameThroughProxy(r *http.Request) bool { return requestheader.HasAny(r, ProxyHeaders) }
