package override

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	setName   = "overrides" // of the values in the Store
	keepOver  = 30 * 24 * time.Hour
	maxHeld   = 100_000
	maxLogged = 50
	maxShown  = 256 // bytes of a text
)

// A record is the text of a value, as JSON. The name of the value has the policy and the key. Its version is the time at
// which it was written. The Store keeps it for 30 days after its end, so that a replica that was away then learns of the
// end, and for the history.
type record struct {
	Limit  string    `json:"limit"` // "": the override was ended
	Until  time.Time `json:"until,omitzero"`
	Was    string    `json:"was"`
	By     string    `json:"by"`
	Why    string    `json:"why"`
	Forced bool      `json:"forced,omitempty"`
}

// parseRecord parses the text of a value, which somebody may have written by hand. The texts of the record are safe to show.
func parseRecord(text string) (r record, err error) {
	if json.Unmarshal([]byte(text), &r) != nil {
		return record{}, errors.New(`the value is malformed: must be like {"limit":"120/1m","by":"alice"}`)
	}
	r.Limit, r.Was = logtext.Show(r.Limit, maxLimit), logtext.Show(r.Was, maxLimit)
	r.By, r.Why = logtext.Show(r.By, maxShown), logtext.Show(r.Why, maxShown)
	return r, nil
}

// nameOf returns the name of the value of a policy or of one of its keys, such as "api" or "api ip:192.0.2.1". The name of a
// policy has no space.
func nameOf(policy, key string) string {
	if key == "" {
		return policy
	}
	return policy + " " + key
}

// shownName is the name of a value for logs and errors.
func shownName(policy, key string) string { return logtext.Show(nameOf(policy, key), maxShown) }

// A held is a value of the set as a replica holds it. It is small, because there may be 100,000: equal limits are one, and
// the rest of the text is parsed when it is shown.
type held struct {
	name, text string
	version    int64
	until, end int64 // in microseconds, of the value and of the override; 0: none
	limit      unique.Handle[ratelimit.Limit]
	follow     bool
	why        string // it is followed, or is not; "" if the override was ended
}

func (h *held) policyAndKey() (policy, key string) {
	policy, key, _ = strings.Cut(h.name, " ")
	return policy, key
}

func (h *held) at() time.Time { return time.UnixMicro(h.version).UTC() }

// value returns the value as the Store has it.
func (h *held) value() store.Value {
	return store.Value{Name: h.name, Text: h.text, Version: h.version, Until: timeOf(h.until)}
}

func timeOf(µs int64) time.Time {
	if µs == 0 {
		return time.Time{}
	}
	return time.UnixMicro(µs).UTC()
}

func microseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// programLimits are the limits that a program sets, by policy: more than one if the policy is mounted with different ones.
// The zero Limit stands for a policy whose LimitFunc chooses all limits.
type programLimits map[string][]ratelimit.Limit

// shown returns the limit of a policy to show: the first, or the zero Limit if there is none.
func (p programLimits) shown(policy string) ratelimit.Limit { return cmp.Or(p[policy]...) }

// A book is a copy of the set, judged against the limits of a program.
type book struct {
	programs  programLimits // nil: not known
	maxFactor int64
	values    map[string]*held
}

var (
	errUnknown = errors.New("Policy: the program has no policy of this name")
	errOrphan  = errors.New("the program has no policy of this name: end the override, unless a program will have the policy")
	errName    = errors.New(`the name of the value is malformed: must be a policy, or a policy, a space and a key, such as "api ip:192.0.2.1"`)
)

// judge says whether a value is followed at a time of the Store.
func (b *book) judge(v store.Value, now time.Time) *held {
	h := &held{name: v.Name, text: v.Text, version: v.Version, until: microseconds(v.Until)}
	r, err := parseRecord(v.Text)
	h.end = microseconds(r.Until)
	if err == nil && (r.Limit == "" || passed(h.end, now)) {
		return h
	}
	var limit ratelimit.Limit
	if err == nil {
		limit, err = parseLimit(r.Limit)
	}
	policy, key := h.policyAndKey()
	switch program := b.programs[policy]; {
	case err != nil:
	case nameOf(policy, key) != v.Name || checkNames(policy, key) != nil:
		err = errName
	case b.programs == nil: // the replicas judge it
	case len(program) == 0:
		err = errOrphan
	case !r.Forced:
		err = withinFactors(policy, key, program, limit, b.maxFactor)
	}
	if err != nil {
		h.why = err.Error()
		return h
	}
	h.limit, h.follow = unique.Make(limit), true
	h.why = "set by " + r.By + " at " + h.at().Format(time.RFC3339)
	if r.Why != "" {
		h.why += " (" + r.Why + ")"
	}
	return h
}

// inForce returns the limit that is enforced for a policy or one of its keys, zero if it is that of a LimitFunc or not
// known.
func (b *book) inForce(policy, key string) ratelimit.Limit {
	for _, name := range []string{nameOf(policy, key), policy} {
		if h := b.values[name]; h != nil && h.follow {
			return h.limit.Value()
		}
	}
	return b.programs.shown(policy)
}

// set returns the value that a change writes.
func (b *book) set(c Change, now time.Time) (v store.Value, err error) {
	asked, err := c.check(now)
	if err != nil {
		return v, c.refuse(err)
	}
	was, err := c.was()
	if err != nil {
		return v, c.refuse(err)
	}
	inForce, program := b.inForce(c.Policy, c.Key), b.programs[c.Policy]
	switch {
	case b.programs == nil:
		inForce = cmp.Or(inForce, was)
		if program = []ratelimit.Limit{cmp.Or(was, inForce)}; inForce == (ratelimit.Limit{}) {
			return v, c.refuse(ErrNotKnown)
		}
	case len(program) == 0:
		return v, c.refuse(fmt.Errorf("%w: it has %s", errUnknown, quoted(b.programs)))
	}
	if err := c.conflict(was, inForce); err != nil {
		return v, err
	}
	beyond := withinFactors(c.Policy, c.Key, program, asked, b.maxFactor)
	if beyond != nil && !c.Force {
		return v, beyond
	}
	v = store.Value{Name: nameOf(c.Policy, c.Key)}
	if h := b.values[v.Name]; h != nil {
		v.Version = h.version
	} else if len(b.values) >= maxHeld {
		return v, c.refuse(fmt.Errorf("there are %d overrides, with those that ended in the last 30 days: must be at most %d", len(b.values), maxHeld))
	}
	if !c.Until.IsZero() {
		v.Until = c.Until.Add(keepOver)
	}
	v.Text, err = text(record{
		Limit: asked.String(), Until: c.Until.UTC(), Was: limitText(inForce), By: c.By, Why: c.Why,
		Forced: beyond != nil || c.Force && b.programs == nil, // the replicas may have a program of another limit
	})
	return v, err
}

// end returns the value that ends an override.
func (b *book) end(c Change, now time.Time) (v store.Value, err error) {
	if err := c.checkWho(); err != nil {
		return v, c.refuse(err)
	}
	was, err := c.was()
	if err != nil {
		return v, c.refuse(err)
	}
	h := b.values[nameOf(c.Policy, c.Key)]
	if h == nil || h.why == "" {
		return v, c.refuse(errors.New("it has no override: there is nothing to end"))
	}
	inForce := b.inForce(c.Policy, c.Key)
	if b.programs != nil || inForce != (ratelimit.Limit{}) {
		if err := c.conflict(was, inForce); err != nil {
			return v, err
		}
	}
	r, _ := parseRecord(h.text)
	v = store.Value{Name: h.name, Version: h.version, Until: now.Add(keepOver)}
	v.Text, err = text(record{Was: r.Limit, By: c.By, Why: c.Why})
	return v, err
}

func text(r record) (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// entries returns the policies of the program and the overrides for which match is true, by policy and key.
func (b *book) entries(match func(policy, key string) bool) []Entry {
	names := make(map[string]bool)
	for policy := range b.programs {
		names[policy] = match(policy, "")
	}
	for name, h := range b.values {
		if h.why != "" {
			names[name] = match(h.policyAndKey())
		}
	}
	maps.DeleteFunc(names, func(_ string, matches bool) bool { return !matches })
	list := make([]Entry, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, b.entry(name))
	}
	return list
}

func (b *book) entry(name string) Entry {
	policy, key, _ := strings.Cut(name, " ")
	e := Entry{Policy: logtext.Show(policy, maxPolicy), Key: key}
	if len(b.programs[policy]) > 0 {
		e.Program = limitText(b.programs.shown(policy))
		e.InForce = limitText(b.inForce(policy, key))
	}
	h := b.values[name]
	if h == nil || h.why == "" {
		return e
	}
	r, _ := parseRecord(h.text)
	e.Until, e.By, e.At, e.Why, e.Forced = timeOf(h.end), r.By, h.at(), r.Why, r.Forced
	if h.follow {
		e.InForce = limitText(h.limit.Value())
	} else {
		e.Refused = h.why
	}
	return e
}

// history returns the last changes, the newest first. Malformed values are left out.
func (b *book) history() []Logged {
	newest := slices.SortedFunc(maps.Values(b.values), func(x, y *held) int { return cmp.Compare(y.version, x.version) })
	list := []Logged{}
	for _, h := range newest {
		r, err := parseRecord(h.text)
		if err != nil || len(list) == maxLogged {
			continue
		}
		policy, key := h.policyAndKey()
		list = append(list, Logged{
			At: h.at(), Policy: logtext.Show(policy, maxPolicy), Key: key,
			Limit: r.Limit, Until: timeOf(h.end), Was: r.Was, By: r.By, Why: r.Why, Forced: r.Forced,
		})
	}
	return list
}
