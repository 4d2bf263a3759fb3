package dryroute

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"strings"
)

// Name returns the name of a handler for a message: that of its function or its type.
func Name(h http.Handler) string {
	if f, ok := h.(http.HandlerFunc); ok {
		return nameOfFunc(f)
	}
	return fmt.Sprintf("%T", h)
}

// nameOfFunc returns the name of a function, with the last element of the path of its package.
func nameOfFunc(f any) string {
	path := pathOfFunc(f)
	return path[strings.LastIndexByte(path, '/')+1:]
}

func pathOfFunc(f any) string {
	if code := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); code != nil {
		return code.Name()
	}
	return "a function without a name"
}

const (
	module   = "github.com/go-tokenbucket/ratelimit/"
	adapters = module + "contrib/"
)

var (
	// closure matches functions that are made in a function. A method ServeHTTP is that of a handler.
	closure = regexp.MustCompile(`\.func\d+|\.(ServeHTTP|routeHTTP)-fm$`)

	// wrapping matches the functions and types of net/http that wrap handlers, and a method of any handler.
	wrapping = regexp.MustCompile(`^net/http\.(StripPrefix|MaxBytesHandler|AllowQuerySemicolons|timeoutHandler|Handler\.ServeHTTP-fm)\b`)
)

// opaque reports whether other handlers may be inside of h.
func opaque(h http.Handler) bool {
	f, isFunc := h.(http.HandlerFunc)
	name := ""
	if isFunc {
		name = pathOfFunc(f)
	} else if t := reflect.TypeOf(h); t != nil {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		name = t.PkgPath() + "." + t.Name()
	}
	first, _, _ := strings.Cut(name, "/")
	standard := first == "net" || strings.HasPrefix(name, "expvar.")
	switch {
	case standard:
		return wrapping.MatchString(name)
	case strings.HasPrefix(name, module+"internal/rateheader."): // around a reverse proxy
		return false
	case strings.HasPrefix(name, adapters): // an adapter, which leads into a framework
		return true
	}
	return !isFunc || closure.MatchString(name)
}
