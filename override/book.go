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
	maxAt     = 1<<53 - 1
)

// A record is the text of a value, as JSON. The name of the value has the policy and the key. Its version is the time at
// which it was written. The Store keeps it for 30 days after its end, so that a replica that was away then learns of the
// end, and for the history.
//
// A value that is written back gets a new version. It keeps the time of the change in At. So a replica that did not know of
// a later change cannot undo that one.
type record struct {
	Limit  string    `json:"limit"` // "": the override was ended
	Until  time.Time `json:"until,omitzero"`
	Was    string    `json:"was"`
	By     string    `json:"by"`
	Why    string    `json:"why"`
	Forced bool      `json:"forced,omitempty"`
	At     int64     `json:"at,omitempty"` // the time of the change, of UnixMicro; 0: the version
}

func (r record) text() string {
	text, _ := json.Marshal(r) // an error would be that of a year beyond 9999, which read refuses
	return string(text)
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

// A held is a value of the set as a replica holds it. It is small, because there may be 100,000: equal texts are one.
type held struct {
	name           string
	version        int64
	changed        int64                          // of UnixMicro: the version, unless it was written back since
	until, end     int64                          // of UnixMicro, of the value and of the override
	limit          unique.Handle[ratelimit.Limit] // the zero Limit: it was ended, or is malformed
	was, by, why   string                         // as they were written: show them with logtext.Show
	forced, follow bool
	verdict        string // why it is followed, or is not; "" if its end has come
}

func (h *held) policyAndKey() (policy, key string) {
	policy, key, _ = strings.Cut(h.name, " ")
	return policy, key
}

func (h *held) over() bool      { return h.verdict == "" }
func (h *held) refused() bool   { return !h.follow && h.verdict != "" }
func (h *held) malformed() bool { return !h.over() && h.limit.Value() == ratelimit.Limit{} }

// text returns the text of the limit, "" if there is none.
func (h *held) text() string {
	if limit := h.limit.Value(); limit != (ratelimit.Limit{}) {
		return limit.String()
	}
	return ""
}

// value returns the value as the Store has it, unless it is malformed.
func (h *held) value() store.Value {
	r := record{h.text(), timeOf(h.end), h.was, h.by, h.why, h.forced, h.changed}
	return store.Value{Name: h.name, Text: r.text(), Version: h.version, Until: timeOf(h.until)}
}

// next returns the At of the change that follows h, which may be nil. It is 0 unless the clock of the Store is behind the one
// by which h was changed, as it may be after a failover.
func (h *held) next(now time.Time) int64 {
	if h == nil || h.changed < now.UnixMicro() {
		return 0
	}
	return min(h.changed+1, maxAt)
}

// timeOf returns a time of UnixMicro, which has a number for the zero Time, too.
func timeOf(µs int64) time.Time { return time.UnixMicro(µs).UTC() }

// passed reports whether an end has come. With an equal time it has, as in the Store.
func passed(end int64, now time.Time) bool { return end > 0 && end <= now.UnixMicro() }

// A book is a copy of the set, judged against the limits of a program.
type book struct {
	programs  map[string][]ratelimit.Limit // as Limiter.ProgramLimits returns them; nil: not known
	maxFactor int64
	values    map[string]*held
}

// program returns the limit of a policy to show: the first, or the zero Limit if a LimitFunc chooses all or none is known.
func (b *book) program(policy string) ratelimit.Limit { return cmp.Or(b.programs[policy]...) }

// newHeld returns a value as it is held. It is not judged yet.
func newHeld(v store.Value) *held {
	h := &held{name: v.Name, version: v.Version, until: v.Until.UnixMicro()}
	var r record
	var limit ratelimit.Limit
	err := json.Unmarshal([]byte(v.Text), &r)
	if year := r.Until.UTC().Year(); err != nil || !r.Until.IsZero() && (year < 1971 || year > 9999) || r.At < 0 || r.At > maxAt {
		r, err = record{}, errors.New(`the value is malformed: must be like {"limit":"120/1m","until":"2027-01-01T00:00:00Z","by":"alice"}`)
	} else if len(r.By) > maxBy || len(r.Why) > maxWhy || len(r.Was) > maxShown { // it could not be written back
		r, err = record{}, fmt.Errorf("the value is malformed: must have at most %d bytes of by, and %d of why and of was", maxBy, maxWhy)
	} else if r.Limit != "" {
		limit, err = parseLimit(r.Limit)
	}
	if policy, key := h.policyAndKey(); r.Limit != "" && (nameOf(policy, key) != h.name || checkNames(policy, key) != nil) {
		err = errors.New(`the name of the value is malformed: must be a policy, or a policy, a space and a key, such as "api ip:192.0.2.1"`)
	}
	if err != nil {
		limit, h.verdict = ratelimit.Limit{}, err.Error()
	}
	h.limit = unique.Make(limit)
	h.end, h.forced, h.why, h.changed = r.Until.UnixMicro(), r.Forced, r.Why, cmp.Or(r.At, v.Version)
	h.was, h.by = unique.Make(r.Was).Value(), unique.Make(r.By).Value()
	return h
}

// judge sets whether a value is followed at a time of the Store.
func (b *book) judge(h *held, now time.Time) {
	if h.follow = false; h.malformed() {
		return
	}
	if h.verdict = ""; h.limit.Value() == (ratelimit.Limit{}) || passed(h.end, now) {
		return
	}
	var err error
	policy, key := h.policyAndKey()
	switch program := b.programs[policy]; {
	case b.programs == nil: // the replicas judge it
	case len(program) == 0:
		err = errors.New("the program has no policy of this name: end the override, unless a program will have the policy")
	default:
		if err = sameKind(program, h.limit.Value()); err == nil && !h.forced {
			err = withinFactors(policy, key, program, h.limit.Value(), b.maxFactor)
		}
	}
	if err != nil {
		h.verdict = strings.TrimPrefix(err.Error(), "override: ")
		return
	}
	h.follow, h.verdict = true, "set by "+logtext.Show(h.by, maxShown)+" at "+timeOf(h.changed).Format(time.RFC3339)
	if h.why != "" {
		h.verdict += " (" + logtext.Show(h.why, maxShown) + ")"
	}
}

// inForce returns the limit that is enforced for a policy or one of its keys, zero if it is that of a LimitFunc or not
// known.
func (b *book) inForce(policy, key string) ratelimit.Limit {
	for _, name := range []string{nameOf(policy, key), policy} {
		if h := b.values[name]; h != nil && h.follow {
			return h.limit.Value()
		}
	}
	return b.program(policy)
}

// set returns the value that a change writes.
func (b *book) set(c Change, now time.Time) (v store.Value, err error) {
	asked, err := c.check(now)
	was, err2 := c.whoAndWas()
	if err := cmp.Or(err, err2); err != nil {
		return v, c.refuse(err)
	}
	inForce, program := b.inForce(c.Policy, c.Key), b.programs[c.Policy]
	switch {
	case b.programs == nil:
		inForce = cmp.Or(inForce, was)
		if program = []ratelimit.Limit{cmp.Or(was, inForce)}; inForce == (ratelimit.Limit{}) {
			return v, c.refuse(errors.New("the program's limit is not known: pass its policies, or the limit that is in force as Was (in the command: -policies, or -was)"))
		}
	case len(program) == 0:
		return v, c.refuse(fmt.Errorf("Policy: the program has no policy of this name: it has %q", slices.Sorted(maps.Keys(b.programs))))
	}
	if err := sameKind(program, asked); err != nil && (b.programs != nil || !c.Force) { // the replicas may have a program of another limit
		return v, c.refuse(err)
	}
	if err := c.conflict(was, inForce); err != nil {
		return v, err
	}
	beyond := withinFactors(c.Policy, c.Key, program, asked, b.maxFactor)
	if beyond != nil && !c.Force {
		return v, beyond
	}
	v = store.Value{Name: nameOf(c.Policy, c.Key)}
	h := b.values[v.Name]
	if h != nil {
		v.Version = h.version
	} else if len(b.values) >= maxHeld {
		return v, c.refuse(fmt.Errorf("there are %d overrides, with those that ended in the last 30 days: must be at most %d", len(b.values), maxHeld))
	}
	if !c.Until.IsZero() {
		v.Until = c.Until.Add(keepOver)
	}
	v.Text = record{
		Limit: asked.String(), Until: c.Until.UTC(), Was: limitText(inForce), By: c.By, Why: c.Why,
		Forced: beyond != nil || c.Force && b.programs == nil,
		At:     h.next(now),
	}.text()
	return v, nil
}

// end returns the value that ends an override.
func (b *book) end(c Change, now time.Time) (v store.Value, err error) {
	was, err := c.whoAndWas()
	if err != nil {
		return v, c.refuse(err)
	}
	h := b.values[nameOf(c.Policy, c.Key)]
	if h == nil || h.over() {
		return v, c.refuse(errors.New("there is nothing to end: it has no override"))
	}
	if err := c.conflict(was, b.inForce(c.Policy, c.Key)); err != nil {
		return v, err
	}
	ended := record{Was: h.text(), By: c.By, Why: c.Why, At: h.next(now)}.text()
	return store.Value{Name: h.name, Text: ended, Version: h.version, Until: now.Add(keepOver)}, nil
}

// list is [Overrides.List].
func (b *book) list(match func(policy, key string) bool) []Entry {
	names := make(map[string]*held)
	add := func(h *held) {
		if match == nil || match(h.policyAndKey()) {
			names[h.name] = h
		}
	}
	for policy := range b.programs {
		add(&held{name: policy})
	}
	for _, h := range b.values {
		if !h.over() {
			add(h)
		}
	}
	list := make([]Entry, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, b.entry(names[name]))
	}
	return list
}

// history returns the last changes, the newest first. Malformed values are left out.
func (b *book) history() []Entry {
	list := []Entry{}
	for _, h := range slices.SortedFunc(maps.Values(b.values), func(x, y *held) int { return cmp.Compare(y.changed, x.changed) }) {
		if !h.malformed() && len(list) < maxLogged {
			list = append(list, b.entry(h))
		}
	}
	return list
}

// entry returns the entry of a value, or of a policy without one.
func (b *book) entry(h *held) Entry {
	policy, key := h.policyAndKey()
	e := Entry{Policy: logtext.Show(policy, maxPolicy), Key: key}
	if len(b.programs[policy]) > 0 {
		e.Program, e.InForce = limitText(b.program(policy)), limitText(b.inForce(policy, key))
	}
	if h.version == 0 {
		return e
	}
	e.Limit, e.Until, e.Was, e.Forced = h.text(), timeOf(h.end), logtext.Show(h.was, maxShown), h.forced
	e.By, e.At, e.Why = logtext.Show(h.by, maxShown), timeOf(h.changed), logtext.Show(h.why, maxShown)
	if h.follow {
		e.InForce = e.Limit
	} else {
		e.Refused = h.verdict
	}
	return e
}
