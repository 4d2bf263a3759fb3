package redisstore

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A redisURL is the URL of Options or ClusterOptions.
type redisURL struct {
	*url.URL
	function string // for errors
}

func parseURL(function, text string, schemes ...string) (redisURL, error) {
	u, err := url.Parse(text)
	r := redisURL{u, function}
	if err != nil || u.Fragment != "" {
		return r, r.malformed()
	}
	if !slices.Contains(schemes, u.Scheme) {
		return r, fmt.Errorf("redisstore: %s: the URL's scheme %q must be %s", function, u.Scheme, strings.Join(schemes, " or "))
	}
	return r, nil
}

// malformed does not quote the URL, because any part of it may belong to a password that was not escaped.
func (r redisURL) malformed() error {
	return fmt.Errorf("redisstore: %s: the URL must be like redis://user:password@host:port/db; special characters of the password must be escaped, such as @ as %%40", r.function)
}

// refused explains err, an error of go-redis, which quotes paths and parameters.
func (r redisURL) refused(err error) error {
	if strings.Contains(r.Path+r.RawQuery, "@") {
		return r.malformed()
	}
	return fmt.Errorf("redisstore: %s: the URL must be like redis://user:password@host:port/db?dial_timeout=500ms: %w", r.function, err)
}

// gives reports whether the URL sets a parameter.
func (r redisURL) gives(parameter string) bool {
	values := r.Query()[parameter]
	return len(values) > 0 && values[len(values)-1] != ""
}
