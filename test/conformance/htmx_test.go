package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// htmx puts what it gets into a page that is there.
func TestHTMXIsNotSentAWholePage(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, ratelimit.Config{Policies: []ratelimit.Policy{everybody(ratelimit.Every(time.Hour))}})
	url := serve(t, l.Handler(okHandler))
	send(t, url)
	for _, accept := range []string{"*/*", "text/html, */*", "text/html"} {
		a := send(t, url, with("HX-Request", "true"), with("Accept", accept))
		wantDenial(t, a)
		for _, tag := range []string{"<!doctype", "<html", "<head", "<body"} {
			if strings.Contains(strings.ToLower(a.body), tag) {
				t.Errorf("Accept %s: the body is a page: %q", accept, a.body)
			}
		}
	}
}
