package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// topOverview is how many keys of all policies together the first page shows in each list.
const topOverview = 10

// keyFacts name a key.
type keyFacts struct {
	Key string `json:"key"` // or its "hmac:" name, where keys are not shown
	B64 string `json:"key_b64,omitempty"`
	ID  string `json:"id,omitempty"` // in place of a key that is not shown
}

// Shown is how the page shows the key.
func (k keyFacts) Shown() string { return logtext.Show(k.Key, maxShown) }

// Kind is the part of a key before its colon, such as "ip".
func (k keyFacts) Kind() string {
	kind, _, ok := strings.Cut(k.Key, ":")
	if !ok || kind == "" || len(kind) > 32 || logtext.Show(kind, 32) != kind {
		return ""
	}
	return kind
}

// nameKey returns the facts of a key.
func (h *handler) nameKey(key string) keyFacts {
	if h.cfg.KeySecret != nil {
		name := keyname.Secret(h.cfg.KeySecret, key)
		return keyFacts{Key: name, ID: name}
	}
	k := keyFacts{Key: key}
	if !utf8.ValidString(key) {
		k.B64 = encodeKey(key)
	}
	return k
}

// nameTopKey returns the facts of a key as a Top shows it: as it is, or by a name that the Top has given it.
func (h *handler) nameTopKey(shown string) keyFacts {
	if isNameOfKey(shown) {
		return keyFacts{Key: shown, ID: shown}
	}
	return h.nameKey(shown)
}

func isNameOfKey(shown string) bool     { return isHex(shown, "hmac:", 16) }
func isNameOfLongKey(shown string) bool { return isHex(shown, "sha256:", 64) }

func isHex(text, prefix string, digits int) bool {
	text, ok := strings.CutPrefix(text, prefix)
	return ok && len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

// keyOf returns the key that an id stands for. Only keys in the lists of the Top, and those with an override, have one.
func (h *handler) keyOf(policy, id string) (string, error) {
	if s := h.cfg.Overrides; s != nil && h.cfg.KeySecret != nil {
		for _, e := range s.List(func(_, key string) bool { return key != "" && keyname.Secret(h.cfg.KeySecret, key) == id }) {
			return e.Key, nil
		}
	}
	if top := h.cfg.Top; top != nil {
		names := []string{policy} // the lists of other policies may have it, too
		for _, p := range h.policies() {
			names = append(names, p.Name)
		}
		for _, name := range names[:min(len(names), maxPolicies+1)] {
			if key, ok := top.Find(name, id); ok {
				return key, nil
			}
			if h.cfg.KeySecret == nil {
				continue
			}
			for _, list := range []observe.TopList{top.Heaviest(name, maxTopKeys), top.Denied(name, maxTopKeys)} { // with keys as they are
				for _, k := range list.Keys {
					if keyname.Secret(h.cfg.KeySecret, k.Key) == id {
						return k.Key, nil
					}
				}
			}
		}
	}
	return "", refuse(http.StatusNotFound, "The key %s is not in the lists of its policy any more. Look it up by the key itself.", logtext.Show(id, maxShown))
}

// topKeyFacts are a key in a list.
type topKeyFacts struct {
	Policy string `json:"policy"`
	keyFacts
	Requests int64   `json:"requests"`
	Denied   int64   `json:"denied"`
	Error    int64   `json:"error"`
	Share    float64 `json:"share"`

	long bool // the Top has not kept the key
}

// Link is the address of the key's page, "" if it has none.
func (k topKeyFacts) Link() string {
	if k.long {
		return ""
	}
	return "key?" + k.address(k.Policy)
}

// address returns the parameters that name the key.
func (k keyFacts) address(policy string) string {
	values := url.Values{}
	if policy != "" {
		values.Set("policy", policy)
	}
	if k.ID != "" {
		values.Set("id", k.ID)
	} else {
		values.Set("key", k.Key)
	}
	return values.Encode()
}

// topFacts are lists of keys, of one policy or of all.
type topFacts struct {
	Policy   string        `json:"policy,omitempty"`
	Since    *time.Time    `json:"since"`
	Requests int64         `json:"requests"` // of the policy, since then
	Denials  int64         `json:"denials"`
	Heaviest []topKeyFacts `json:"heaviest"`
	Denied   []topKeyFacts `json:"denied"`
}

// Kinds are the kinds of keys in the lists.
func (t *topFacts) Kinds() (kinds []string) {
	for _, list := range [][]topKeyFacts{t.Heaviest, t.Denied} {
		for _, k := range list {
			if kind := k.Kind(); kind != "" && k.ID == "" && len(kinds) < 5 && !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

// topOf returns the lists of one policy.
func (h *handler) topOf(policy string, n int) *topFacts {
	heaviest, denied := h.cfg.Top.Heaviest(policy, n), h.cfg.Top.Denied(policy, n)
	return &topFacts{
		Policy:   policy,
		Since:    utc(heaviest.Since),
		Requests: heaviest.Requests,
		Denials:  heaviest.Denied,
		Heaviest: h.topKeys(policy, heaviest.Keys),
		Denied:   h.topKeys(policy, denied.Keys),
	}
}

func (h *handler) topKeys(policy string, keys []observe.TopKey) []topKeyFacts {
	list := []topKeyFacts{} // [] rather than null in JSON
	for _, k := range keys {
		list = append(list, topKeyFacts{policy, h.nameTopKey(k.Key), k.Requests, k.Denied, k.Error, finite(k.Share), isNameOfLongKey(k.Key)})
	}
	return list
}

// topOfAll returns the lists of all policies together.
func (h *handler) topOfAll() *topFacts {
	all := &topFacts{Heaviest: []topKeyFacts{}, Denied: []topKeyFacts{}}
	for i, p := range h.policies() {
		if i == maxPolicies {
			break
		}
		of := h.topOf(p.Name, topOverview)
		all.Since = of.Since
		all.Requests += of.Requests
		all.Denials += of.Denials
		all.Heaviest = append(all.Heaviest, of.Heaviest...)
		all.Denied = append(all.Denied, of.Denied...)
	}
	// By what is certain, as each list is sorted.
	slices.SortStableFunc(all.Heaviest, func(a, b topKeyFacts) int { return cmp.Compare(b.Requests-b.Error, a.Requests-a.Error) })
	slices.SortStableFunc(all.Denied, func(a, b topKeyFacts) int { return cmp.Compare(b.Denied-b.Error, a.Denied-a.Error) })
	all.Heaviest = all.Heaviest[:min(topOverview, len(all.Heaviest))]
	all.Denied = all.Denied[:min(topOverview, len(all.Denied))]
	return all
}

// askedTop returns the policy that a request asks for, "" if all, and its lists, nil if there are none.
func (h *handler) askedTop(c *call) (policy string, top *topFacts, err error) {
	values, err := c.parameters()
	if err != nil {
		return "", nil, err
	}
	if policy, err = h.policy(values); err != nil {
		return "", nil, err
	}
	switch {
	case h.cfg.Top == nil:
	case policy == "":
		top = h.facts(c.r.Context()).Top
	default:
		top = h.topOf(policy, maxTopKeys)
	}
	return policy, top, nil
}

func (h *handler) topJSON(c *call) error {
	_, top, err := h.askedTop(c)
	if err != nil {
		return err
	}
	if top == nil {
		return refuse(http.StatusNotFound, "This service keeps no lists of keys. Set Config.Top to an observe.Top, and Config.Observe of the Limiter to its Observe method.")
	}
	return c.writeJSON(http.StatusOK, struct {
		Version int       `json:"version"`
		At      time.Time `json:"at"`
		*topFacts
	}{version, time.Now().UTC(), top})
}
