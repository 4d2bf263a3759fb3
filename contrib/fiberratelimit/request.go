package fiberratelimit

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// newCall returns a call with the request for key functions. It copies each string: Fiber's strings are parts of
// buffers that the next request on the connection overwrites, and stores keep keys.
func newCall(c fiber.Ctx, pattern string) *call {
	rctx := c.RequestCtx()
	h, uri := &rctx.Request.Header, rctx.Request.URI()
	x := &call{Context: c.Context(), c: c, locals: true}
	var text texts
	text.Grow(len(h.RequestURI()) + len(h.RawHeaders()) + 24)
	requestURI := text.copyOf(h.RequestURI())
	x.url.Path = text.part(requestURI, c.Path())
	x.url.RawQuery = text.part(requestURI, string(uri.QueryString()))
	x.request = *blank.WithContext(x)
	r := &x.request
	r.Method = c.Method() // a string of Fiber's own
	r.URL = &x.url
	r.Header = x.headerOf(h, &text)
	r.ContentLength = lengthOf(h)
	r.Host = text.copyOf(uri.Host())
	r.RemoteAddr = text.copyOfAddr(rctx.RemoteAddr())
	r.RequestURI = requestURI
	r.TLS = rctx.TLSConnectionState()
	r.Pattern = pattern
	if proto := h.Protocol(); string(proto) != r.Proto {
		r.Proto = text.copyOf(proto)
		r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(r.Proto)
	}
	return x
}

// blank is what most requests have in common.
var blank = &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody}

// lengthOf returns the length of the body, -1 if the client has not declared it.
func lengthOf(h *fasthttp.RequestHeader) int64 {
	if n := h.ContentLength(); n != noBody {
		return int64(n)
	}
	return 0
}

// noBody is fasthttp's content length of a request without a body.
const noBody = -2

// A texts holds copies of strings, in one allocation if it was grown enough. The strings that it has returned never change.
type texts struct{ strings.Builder }

// part returns a copy of text, which is a part of whole in most requests.
func (t *texts) part(whole, text string) string {
	if i := strings.Index(whole, text); i >= 0 {
		return whole[i : i+len(text)]
	}
	return t.copyOf([]byte(text))
}

func (t *texts) copyOf(text []byte) string {
	t.Write(text)
	return t.String()[t.Len()-len(text):]
}

// copyOfAddr returns the text of an address, as net/http has it in Request.RemoteAddr.
func (t *texts) copyOfAddr(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		if a := tcp.AddrPort(); a.IsValid() { // String would make four allocations
			var room [64]byte
			return t.copyOf(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(room[:0]))
		}
	}
	return addr.String()
}

// headerOf returns a copy of the header of a request.
func (x *call) headerOf(h *fasthttp.RequestHeader, text *texts) http.Header {
	lines := bytes.Count(h.RawHeaders(), []byte("\n")) - 2 // Host, and the empty one
	header := make(http.Header, min(max(lines, 0), 32))    // clients choose the number
	values := x.values[:0]
	for name, value := range h.All() {
		canonical := textproto.CanonicalMIMEHeaderKey(text.copyOf(name))
		switch canonical {
		case "Host", "Transfer-Encoding", "Trailer": // are no part of Request.Header
			continue
		case "Cookie":
			if cookies := cookiesOf(h); cookies != "" {
				header[canonical] = []string{cookies}
			}
			continue
		}
		if header[canonical] != nil {
			header[canonical] = append(header[canonical], text.copyOf(value))
			continue
		}
		values = append(values, text.copyOf(value))
		header[canonical] = values[len(values)-1 : len(values) : len(values)]
	}
	if h.ContentLength() != noBody {
		removeTrailers(header, h)
	}
	return header
}

// cookiesOf returns the cookies as the application finds them by name. Those that net/http does not accept are left out.
// The text that fasthttp has of them would give a limiter other cookies: of "=a=1; a=2" it makes "a=1; a=2".
func cookiesOf(h *fasthttp.RequestHeader) string {
	var text strings.Builder
	var without map[string]bool // names whose first cookie was left out: Fiber finds no other
	for name, value := range h.Cookies() {
		switch {
		case len(name) == 0 || bytes.ContainsFunc(name, notInName) || without[string(name)]:
		case bytes.ContainsFunc(value, notInValue):
			if without == nil {
				without = make(map[string]bool)
			}
			without[string(name)] = true
		default:
			if text.Len() > 0 {
				text.WriteString("; ")
			}
			text.Write(name)
			text.WriteByte('=')
			text.Write(value)
		}
	}
	return text.String()
}

func notInName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
}

func notInValue(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == ';' || r == '\\' }

// removeTrailers removes fields that the client sent after a chunked body. fasthttp adds them to the end of the header.
// A client could choose its address by one, because proxies replace only what is in the header. Of each name as many
// values remain as the header had lines.
func removeTrailers(header http.Header, h *fasthttp.RequestHeader) {
	lines, chunked := map[string]int{}, false
	for line := range bytes.Lines(h.RawHeaders()) {
		if name, _, found := bytes.Cut(line, []byte(":")); found && line[0] != ' ' && line[0] != '\t' {
			canonical := textproto.CanonicalMIMEHeaderKey(string(name))
			lines[canonical]++
			chunked = chunked || canonical == "Transfer-Encoding"
		}
	}
	// Of these, fasthttp keeps only the last line, if it is not empty.
	lines["User-Agent"], lines["Content-Type"] = min(1, len(h.UserAgent())), min(1, len(h.ContentType()))
	for name, values := range header {
		switch n := lines[name]; {
		case !chunked || n >= len(values):
		case n == 0:
			delete(header, name)
		default:
			header[name] = values[:n]
		}
	}
}
