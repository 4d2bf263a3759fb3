package curl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// sent returns an address as curl sends it. The backslashes that keep braces and brackets from being expanded are gone, and
// the dot segments of the path. All bytes of the path that are not ASCII are encoded.
func (p *parser) sent(address string) string {
	if !p.literal {
		var expands bool
		if address, expands = unescapeGlobs(address); expands {
			p.ignore("braces and brackets in the address: they are taken as text, as with -g. Without it, curl would send a request for each text that they stand for")
		}
	}
	scheme, rest, _ := strings.Cut(address, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	host, path := rest[:end], rest[end:]
	tail := ""
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path, tail = path[:i], path[i:]
	}
	if !p.asIs {
		path = withoutDots(path)
	}
	var encoded strings.Builder
	for i := range len(path) {
		if path[i] < utf8.RuneSelf {
			encoded.WriteByte(path[i])
		} else {
			fmt.Fprintf(&encoded, "%%%02x", path[i])
		}
	}
	return scheme + "://" + host + encoded.String() + tail
}

// unescapeGlobs removes the backslashes that browsers write before braces and brackets. expands reports whether there are
// braces or brackets without one. Those of an IPv6 address and "[]" do not count.
func unescapeGlobs(address string) (_ string, expands bool) {
	host := len(address)
	if _, rest, ok := strings.Cut(address, "://"); ok {
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			host -= len(rest) - end
		}
	}
	var out strings.Builder
	for i := 0; i < len(address); i++ {
		c := address[i]
		switch {
		case c == '\\' && i+1 < len(address) && strings.IndexByte("[]{}", address[i+1]) >= 0:
			i++
			c = address[i]
		case c == '[' && (i < host || strings.HasPrefix(address[i:], "[]")):
		case c == '{' || c == '[':
			expands = true
		}
		out.WriteByte(c)
	}
	return out.String(), expands
}

// withoutDots removes the segments . and .. of a path, as RFC 3986, section 5.2.4, has it.
func withoutDots(path string) string {
	if path == "" {
		return ""
	}
	var kept []string
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		if segment != "." && segment != ".." {
			kept = append(kept, segment)
			continue
		}
		if segment == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		if i == len(segments)-1 {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	var wrong *url.Error
	if errors.As(err, &wrong) {
		err = wrong.Err
	}
	switch {
	case strings.Contains(text, " "):
		return nil, fmt.Errorf("address %q: has a space, which no request line can have: write %%20", logtext.Show(text, 128))
	case err != nil:
		return nil, fmt.Errorf("address %q: %s: must be like https://example.com/members?page=2", logtext.Show(text, 128), logtext.Show(err.Error(), 128))
	case u.Opaque != "" || u.Host == "" && !strings.HasPrefix(u.Path, "/"):
		return nil, fmt.Errorf("address %q: must be like https://example.com/members, or a path such as /members", logtext.Show(text, 128))
	case u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("address %q: must begin with http:// or https://", logtext.Show(text, 128))
	}
	return u, nil
}

// requestURI returns what a client sends of an address in the first line of a request.
func requestURI(address string) string {
	address, _, _ = strings.Cut(address, "#")
	if _, after, ok := strings.Cut(address, "://"); ok && !strings.HasPrefix(address, "/") {
		begin := strings.IndexAny(after, "/?")
		if begin < 0 {
			return "/"
		}
		address = after[begin:]
	}
	if strings.HasPrefix(address, "?") {
		address = "/" + address
	}
	return address
}
