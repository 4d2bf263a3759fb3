package admin

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit/internal/fleet"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/observe"
)

// keyFacts name a key.
type keyFacts struct {
	Key string `json:"key"` // or its "hmac:" name, where keys are not shown
	B64 string `json:"key_b64,omitempty"`
	ID  string `json:"id,omitempty"` // in place of a key that is not shown

	Name string `json:"name,omitempty"` // by Config.Names
}

// Shown is how the page shows the key.
func (k keyFacts) Shown() string { return logtext.Show(k.Key, maxShown) }

// Field and FieldValue name the key in forms. A browser would change some of its bytes.
func (k keyFacts) Field() string {
	if k.ID != "" {
		return "id"
	}
	return "key_b64"
}

func (k keyFacts) FieldValue() string { return cmp.Or(k.ID, encodeKey(k.Key)) }

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
	if h.cfg.KeySecret != nil { // also a key that only another replica has seen
		f := h.facts(context.Background())
		for _, k := range f.Snapshot.Keys {
			if keyname.Secret(h.cfg.KeySecret, string(k.Name)) == id {
				return string(k.Name), nil
			}
		}
		for _, b := range f.Snapshot.Blocks {
			if keyname.Secret(h.cfg.KeySecret, string(b.Name)) == id {
				return string(b.Name), nil
			}
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

// topKeyFacts are a key in the table of keys.
type topKeyFacts struct {
	Policy string `json:"policy"`
	keyFacts
	Requests int64   `json:"requests"` // in the window of the Top; at most Error too high
	Denied   int64   `json:"denied"`
	Error    int64   `json:"error"`
	Share    float64 `json:"share"` // of the requests of its policy, lately

	// Lately, in steps, the oldest first.
	Lately       []int64 `json:"by_step"`
	DeniedLately []int64 `json:"denied_by_step"`

	State string     `json:"state"` // "blocked" (or locked), "limited" (denied in the last step) or "ok"
	Until *time.Time `json:"until,omitempty"`

	Shadow bool `json:"-"` // its policy denies nothing
	step   time.Duration
	long   bool // the Top has not kept the key
}

// Link is the address of the key's page, "" if it has none.
func (k topKeyFacts) Link() string {
	if k.long {
		return ""
	}
	return "key?" + k.address(k.Policy)
}

// Spark draws what the key did lately.
func (k topKeyFacts) Spark() *spark {
	steps := make([]sparkStep, publishedSteps)
	for i := range steps { // the newest last
		before := publishedSteps - i
		if n := len(k.Lately); before <= n {
			steps[i].Requests = k.Lately[n-before]
		}
		if n := len(k.DeniedLately); before <= n && !k.Shadow {
			steps[i].Denied = k.DeniedLately[n-before]
		}
	}
	return newSpark(k.step, steps)
}

// StateWords says whether requests of the key are allowed now.
func (k topKeyFacts) StateWords() string {
	if k.Until != nil {
		return k.State + " until " + clock(*k.Until)
	}
	return k.State
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

// keys returns the keys of a policy, or of all, by denials and then by requests.
func (f *facts) keys(h *handler) []topKeyFacts {
	keys := []topKeyFacts{} // [] rather than null in JSON
	step := time.Duration(f.KeySteps.Seconds) * time.Second
	first := firstKeys(f.Snapshot.Keys)
	f.LeftOut.Keys += len(f.Snapshot.Keys) - len(first)
	for _, k := range first {
		if k.Name == "" { // sealed with another secret
			continue
		}
		row := topKeyFacts{
			Policy: k.Policy, keyFacts: h.namedTop(k.Policy, string(k.Name)), Requests: k.Count, Denied: k.Denied, Error: k.Error,
			Lately: k.Requests, DeniedLately: k.Denials, State: "ok", step: step, long: isNameOfLongKey(string(k.Name)),
		}
		if p := f.policy(k.Policy); p != nil {
			row.Shadow = p.Shadow
			row.Share = min(1, finite(float64(sumOf(k.Requests))/float64(p.lately(step*time.Duration(len(k.Requests))))))
		}
		if n := len(k.Denials); n > 0 && k.Denials[n-1] > 0 && !row.Shadow {
			row.State = "limited"
		}
		for _, b := range f.Snapshot.Blocks {
			if b.Policy == k.Policy && b.Name == k.Name && b.Until.After(f.At) {
				row.State, row.Until = "blocked", utc(b.Until)
			}
		}
		keys = append(keys, row)
	}
	slices.SortStableFunc(keys, func(a, b topKeyFacts) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests-b.Error, a.Requests-a.Error))
	})
	return keys
}

// maxListed bounds the keys of a page. Fleets list many more, if each replica has other ones.
const maxListed = 200

// firstKeys returns at most maxListed keys: the first of each policy by denials and by requests, then the second of each,
// and so on. So the keys of one policy, however many, leave room for those of others.
func firstKeys(all []fleet.Key) []fleet.Key {
	if len(all) <= maxListed {
		return all
	}
	type place struct {
		fleet.Key
		of int
	}
	places := make([]place, len(all))
	for i, k := range all {
		places[i] = place{k, len(all)}
	}
	for _, count := range []func(fleet.Key) int64{
		func(k fleet.Key) int64 { return k.Denied },
		func(k fleet.Key) int64 { return k.Count - k.Error },
	} {
		slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(count(b.Key), count(a.Key)) })
		met := make(map[string]int)
		for i := range places {
			p := &places[i]
			p.of = min(p.of, met[p.Policy])
			met[p.Policy]++
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.of, b.of) })
	first := make([]fleet.Key, maxListed)
	for i := range first {
		first[i] = places[i].Key
	}
	return first
}

// A keyTable is keys for a table.
type keyTable struct {
	Keys     []topKeyFacts
	Policies bool // show the policy of each key
	Shadow   bool // nothing is denied
	May      bool // block keys
}

// rowsFirst is how many keys the first page shows, and rowsDenied how many of these are there for their denials.
const rowsFirst, rowsDenied = 12, 8

// KeyTable has the keys that are denied most often, and those with the most requests.
func (f *facts) KeyTable() keyTable {
	denied := slices.IndexFunc(f.Keys, func(k topKeyFacts) bool { return k.Denied == 0 })
	if denied < 0 {
		denied = len(f.Keys)
	}
	denied = min(denied, rowsDenied)
	others := slices.Clone(f.Keys[denied:])
	slices.SortStableFunc(others, func(a, b topKeyFacts) int { return cmp.Compare(b.Requests-b.Error, a.Requests-a.Error) })
	return keyTable{slices.Concat(f.Keys[:denied], others[:min(len(others), rowsFirst-denied)]), true, false, false}
}

// A topView is the page of a policy, or of all, and top.json.
type topView struct {
	Version int           `json:"version"`
	At      time.Time     `json:"at"`
	Policy  string        `json:"policy,omitempty"`
	Keys    []topKeyFacts `json:"keys"`
	LeftOut int           `json:"keys_left_out"`

	Of    *policyFacts `json:"-"`
	Facts *facts       `json:"-"`
}

// Heading is that of the page.
func (v *topView) Heading() string {
	if v.Policy == "" {
		return "Keys of all policies"
	}
	return "Policy " + v.Policy
}

// KeyTable has all keys of the policy.
func (v *topView) KeyTable() keyTable {
	return keyTable{v.Keys, v.Policy == "", v.Of != nil && v.Of.Shadow, false}
}

// askedTop returns the keys that a request asks for.
func (h *handler) askedTop(c *call) (*topView, error) {
	values, err := c.parameters()
	if err != nil {
		return nil, err
	}
	f, err := h.askedFacts(c)
	if err != nil {
		return nil, err
	}
	policy, err := one(values, "policy")
	if err == nil && f.policy(policy) == nil { // or it is one that only other replicas have, as in a deployment
		policy, err = h.policy(values)
	}
	if err != nil {
		return nil, err
	}
	v := &topView{Version: version, At: f.At, Policy: policy, Keys: []topKeyFacts{}, LeftOut: f.LeftOut.Keys, Of: f.policy(policy), Facts: f}
	for _, k := range f.Keys {
		if policy == "" || k.Policy == policy {
			v.Keys = append(v.Keys, k)
		}
	}
	return v, nil
}

func (h *handler) topJSON(c *call) error {
	v, err := h.askedTop(c)
	if err != nil {
		return err
	}
	if !v.Facts.HasTop {
		return refuse(http.StatusNotFound, "This service keeps no lists of keys. Set Config.Top to an observe.Top, and Config.Observe of the Limiter to its Observe method.")
	}
	return c.writeJSON(http.StatusOK, v)
}
