package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/numbers"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	maxKey             = 4 << 10 // bytes
	minBlock, maxBlock = time.Second, 366 * 24 * time.Hour
	notAKey            = "Name one key, as key=ip:192.0.2.1 for example, or as key_b64 in base64url."
	exampleDurations   = `30s, 15m, 2h or 7d`
	maxNameInError     = 64
)

// parseForm parses the parameters of an address or a form. It is strict, as url.Query is not: what is malformed may
// have been meant as another key.
func parseForm(text string) (map[string][]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "The parameters are malformed: they must be URL-encoded.")
	}
	return values, nil
}

// parseJSON parses an object of texts and numbers. A field that is there twice has two values.
func parseJSON(text []byte) (map[string][]string, error) {
	malformed := refuse(http.StatusBadRequest, `The body is malformed: it must be one JSON object, such as {"policy":"api","key":"ip:192.0.2.1","for":"15m"}.`)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil, malformed
	}
	values := make(map[string][]string)
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, malformed
		}
		value, err := decoder.Token()
		if err != nil {
			return nil, malformed
		}
		switch value := value.(type) {
		case string:
			if strings.ContainsRune(value, utf8.RuneError) { // the decoder has put it in place of what is not UTF-8
				return nil, refuse(http.StatusBadRequest, "The body is malformed: it is not UTF-8. Send any bytes of a key as key_b64.")
			}
			values[name.(string)] = append(values[name.(string)], value)
		case json.Number:
			values[name.(string)] = append(values[name.(string)], value.String())
		default:
			return nil, malformed
		}
	}
	if _, err := decoder.Token(); err != nil { // the end of the object
		return nil, malformed
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, malformed
	}
	return values, nil
}

// parameterNames are all that there are.
var parameterNames = []string{"policy", "key", "key_b64", "id", "for", "n", "done", "method", "url", "headers", "peer", "route", "curl", "limit", "until", "was", "why", "force", "end", "search", "replica", "range"}

// known returns an error if values have a parameter that does not exist, and so was misspelt.
func known(values map[string][]string) error {
	for name := range values {
		if !slices.Contains(parameterNames, name) {
			return refuse(http.StatusBadRequest, "There is no parameter %q. There are %s.", logtext.Show(name, maxNameInError), strings.Join(parameterNames, ", "))
		}
	}
	return nil
}

// one returns the only value of a parameter. Two values are an error: one of them may be shown and the other used.
func one(values map[string][]string, name string) (string, error) {
	switch v := values[name]; len(v) {
	case 0:
		return "", nil
	case 1:
		return v[0], nil
	}
	return "", refuse(http.StatusBadRequest, "%s is given more than once.", name)
}

// key returns the key that the parameters name, as bytes or by the id that stands for it.
func (h *handler) key(values map[string][]string, policy string) (string, error) {
	var given []string
	for _, name := range []string{"key", "key_b64", "id"} {
		value, err := one(values, name)
		if err != nil {
			return "", err
		}
		if value == "" {
			continue
		}
		switch name {
		case "key_b64":
			raw, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(value, "="))
			if err != nil {
				return "", refuse(http.StatusBadRequest, "key_b64 is not base64url.")
			}
			value = string(raw)
		case "id":
			if value, err = h.keyOf(policy, value); err != nil {
				return "", err
			}
		}
		given = append(given, value)
	}
	switch {
	case len(given) != 1 || given[0] == "":
		return "", refuse(http.StatusBadRequest, notAKey)
	case len(given[0]) > maxKey:
		return "", refuse(http.StatusBadRequest, "The key has %d bytes. Keys here have at most %d.", len(given[0]), maxKey)
	}
	return given[0], nil
}

// policy returns the name of the policy that the parameters name, "" if none. It must be known: a change for a name
// that is misspelt would succeed and change nothing.
func (h *handler) policy(values map[string][]string) (string, error) {
	name, err := one(values, "policy")
	if err != nil || name == "" {
		return "", err
	}
	for _, p := range h.policies() {
		if p.Name == name {
			return name, nil
		}
	}
	return "", refuse(http.StatusBadRequest, "There is no policy %q. Policies that requests do not have are known by Config.Policies.", logtext.Show(name, maxNameInError))
}

// duration returns for how long to block.
func duration(values map[string][]string) (time.Duration, error) {
	text, err := one(values, "for")
	if err != nil {
		return 0, err
	}
	text = strings.TrimSpace(text)
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "for must be a duration, such as %s.", exampleDurations)
	}
	if d < minBlock || d > maxBlock {
		return 0, refuse(http.StatusBadRequest, "for must be from 1s to 366d, such as %s.", exampleDurations)
	}
	return d, nil
}

// flag returns a parameter that is 1 or left out.
func flag(values map[string][]string, name string) (bool, error) {
	value, err := one(values, name)
	if err == nil && value != "" && value != "1" && value != "true" {
		err = refuse(http.StatusBadRequest, "%s must be 1, or be left out.", name)
	}
	return value != "", err
}

// reason returns who blocks a key and why, for operators who see the block later.
func reason(user string, values map[string][]string) (string, error) {
	why, err := one(values, "why")
	if err != nil {
		return "", err
	}
	text := strings.ToValidUTF8(user[:min(len(user), store.MaxReason/2)], "")
	if why = typed(why); why != "" {
		text += ": " + why
	}
	if len(text) > store.MaxReason {
		return "", refuse(http.StatusBadRequest, "why is too long: together with the user's name it must have at most %d bytes.", store.MaxReason)
	}
	return text, nil
}

// tokens returns how many tokens to refund.
func tokens(values map[string][]string) (int64, error) {
	text, err := one(values, "n")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 1 {
		return 0, refuse(http.StatusBadRequest, "n must be a whole number of tokens, from 1 to %s.", numbers.Count(int64(bucket.MaxCredits)))
	}
	return n, nil
}

func encodeKey(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// typed returns what an operator has typed or pasted, without what a page cannot show: characters that are not UTF-8, and
// control characters.
func typed(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\r' && r != '\t' || 0x7f <= r && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return utf8.RuneError
		}
		return r
	}, text))
}
