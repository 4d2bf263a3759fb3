package override

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/configfault"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	maxPolicy = 63 // bytes
	maxKey    = store.MaxValueName - maxPolicy - 1
	maxBy     = 128
	maxWhy    = 256
	maxYears  = 10 // of an end

	ofLimitFunc = "of LimitFunc" // stands for the limits that a LimitFunc chooses
)

// limitText returns the text of a limit of an Entry, which was reads.
func limitText(l ratelimit.Limit) string {
	if l == (ratelimit.Limit{}) {
		return ofLimitFunc
	}
	return l.String()
}

func (c *Change) refuse(err error) error {
	return fmt.Errorf("override: %s: %w: %w", shownName(c.Policy, c.Key), ErrRefused, err)
}

// wrong returns a fault of a field, which the command names by its flag.
func wrong(field, format string, args ...any) error {
	return configfault.Fault{Field: field, Text: fmt.Sprintf(format, args...)}
}

// check returns the new limit of a change that sets one, or what is wrong with the change.
func (c *Change) check(now time.Time) (limit ratelimit.Limit, err error) {
	if err := checkNames(c.Policy, c.Key); err != nil {
		return limit, err
	}
	if limit, err = parseLimit(c.Limit); err != nil {
		return limit, fmt.Errorf("Limit: %w", err)
	}
	last := now.AddDate(maxYears, 0, 0)
	if !c.Until.IsZero() && (!c.Until.After(now) || c.Until.After(last)) {
		return limit, fmt.Errorf("Until %s: must be after now, %s, and at most %d years ahead; without an end, leave it out",
			c.Until.Format(time.RFC3339), now.UTC().Format(time.RFC3339), maxYears)
	}
	return limit, nil
}

// checkNames checks the policy and the key of a change, or of a value that was written by hand.
func checkNames(policy, key string) error {
	switch {
	case !policyname.Valid(policy):
		return errors.New("Policy: must be the name of a policy: " + policyname.Rule)
	case len(key) > maxKey || !utf8.ValidString(key):
		return wrong("Key", "must be at most %d bytes of UTF-8", maxKey)
	case !keyname.CanBe(key):
		return wrong("Key", `must be a kind, a colon and an identity, such as "ip:192.0.2.1" or "member:7"; leave it out for the whole policy`)
	}
	return nil
}

// whoAndWas checks who makes a change, and why, and returns the limit that the caller takes to be in force. It is zero for
// any limit, and for that of a LimitFunc.
func (c *Change) whoAndWas() (was ratelimit.Limit, err error) {
	switch {
	case c.By == "" || len(c.By) > maxBy || !utf8.ValidString(c.By):
		return was, wrong("By", "must say who makes the change, in at most %d bytes of UTF-8", maxBy)
	case len(c.Why) > maxWhy || !utf8.ValidString(c.Why):
		return was, wrong("Why", "must be at most %d bytes of UTF-8", maxWhy)
	case c.Was == "" || c.Was == ofLimitFunc:
		return was, nil
	}
	if was, err = parseLimit(c.Was); err != nil {
		err = fmt.Errorf("Was: %w", err)
	}
	return was, err
}

// conflict returns an ErrConflict if was, of the change, is not the limit in force.
func (c *Change) conflict(was, inForce ratelimit.Limit) error {
	if c.Was == "" || same(was, inForce) {
		return nil
	}
	return fmt.Errorf("override: %s: %w: it is %s, not %s", shownName(c.Policy, c.Key), ErrConflict, limitText(inForce), limitText(was))
}

// parseLimit parses the limit of an override. The text of its error is safe to show.
func parseLimit(text string) (ratelimit.Limit, error) {
	l, err := ratelimit.ParseLimit(text)
	if rest := strings.TrimLeft(text, "0"); rest != text && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, " per ") || strings.HasPrefix(rest, " at once")) {
		err = fmt.Errorf("limit %q: must be above 0: to let no request of a key through, block the key", text)
	}
	if err != nil {
		err = errors.New(logtext.Show(strings.TrimPrefix(err.Error(), "ratelimit: "), maxShown))
	}
	return l, err
}

// sameKind returns an error if limit is a concurrency limit and the program sets another kind, or the other way round. A policy
// that takes slots has no Cost, Settle and LockFor, and is not charged by Take.
func sameKind(program []ratelimit.Limit, limit ratelimit.Limit) error {
	for _, own := range program {
		switch slots := limit.IsConcurrency(); {
		case slots == own.IsConcurrency(), limit == ratelimit.Unlimited:
		case slots:
			return fmt.Errorf("%v is a concurrency limit, and that of the program (%s) is none: use another policy for it", limit, limitText(own))
		default:
			return fmt.Errorf(`%v is no concurrency limit, and that of the program (%v) is one: must be like "3 at once"`, limit, own)
		}
	}
	return nil
}

// same reports whether two limits are one, however they are written.
func same(a, b ratelimit.Limit) bool {
	a.Burst, b.Burst = cmp.Or(a.Burst, a.Rate), cmp.Or(b.Burst, b.Rate)
	return a == b
}

// withinFactors returns a *FactorError for the first limit of program that asked is too far from. Places where a LimitFunc
// chooses all limits count only if there is no other.
func withinFactors(policy, key string, program []ratelimit.Limit, asked ratelimit.Limit, most int64) error {
	if cmp.Or(program...) == (ratelimit.Limit{}) {
		return &FactorError{Policy: policy, Key: key, Asked: asked, Max: most}
	}
	for _, limit := range program {
		e := FactorError{Policy: policy, Key: key, Program: limit, Asked: asked, Max: most}
		if limit != (ratelimit.Limit{}) && !e.within() {
			return &e
		}
	}
	return nil
}

// within reports whether Asked is near enough to Program. If not, it sets Field and Factor.
func (e *FactorError) within() bool {
	asked, program := e.Asked, e.Program
	utc := func(zone string) string { return cmp.Or(zone, time.UTC.String()) }
	if asked == ratelimit.Unlimited || program == ratelimit.Unlimited || asked.Period() != program.Period() || utc(asked.Zone()) != utc(program.Zone()) {
		return false
	}
	within := func(field string, factor float64) bool {
		e.Field, e.Factor = field, factor
		most := float64(e.Max) * (1 + 1e-12) // the quotients are rounded
		return factor <= most && factor*most >= 1
	}
	rate := float64(asked.Rate) / float64(program.Rate)
	if asked.Per == 0 { // a quota or a concurrency limit
		return within("rate", rate)
	}
	return within("rate", rate*float64(program.Per)/float64(asked.Per)) &&
		within("burst", float64(cmp.Or(asked.Burst, asked.Rate))/float64(cmp.Or(program.Burst, program.Rate)))
}
