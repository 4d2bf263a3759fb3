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

// malformed quotes nothing: any part of the URL may be one of a password that was not escaped.
func (r redisURL) malformed() error {
	return fmt.Errorf("redisstore: %s: the URL must be like redis://user:password@host:port/db, with what is special in the password escaped, as @ by %%40", r.function)
}

// refused returns what is wrong by err, go-redis's, which quotes paths and parameters.
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
