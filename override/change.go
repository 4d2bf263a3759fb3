package override

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

const (
	maxPolicy = 63 // bytes
	maxKey    = store.MaxValueName - maxPolicy - 1
	maxLimit  = 80
	maxBy     = 128
	maxWhy    = 256
	maxYears  = 10 // of an end
)

// ofLimitFunc stands for the limits that a LimitFunc chooses.
const ofLimitFunc = "of LimitFunc"

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

// check returns the new limit of a change that sets one, or what is wrong with the change.
func (c *Change) check(now time.Time) (limit ratelimit.Limit, err error) {
	if err := cmp.Or(checkNames(c.Policy, c.Key), c.checkWho()); err != nil {
		return limit, err
	}
	if limit, err = parseLimit(c.Limit); err != nil {
		return limit, fmt.Errorf("Limit: %w", err)
	}
	switch last := now.AddDate(maxYears, 0, 0); {
	case c.Until.IsZero():
	case !c.Until.After(now):
		return limit, fmt.Errorf("Until %s: must be after now, which is %s", c.Until.Format(time.RFC3339), now.Format(time.RFC3339))
	case c.Until.After(last):
		return limit, fmt.Errorf("Until %s: must be at most %d years ahead, until %s; without an end, leave it out", c.Until.Format(time.RFC3339), maxYears, last.Format(time.RFC3339))
	}
	return limit, nil
}

// checkNames checks the policy and the key of a change, or of a value that was written by hand.
func checkNames(policy, key string) error {
	switch {
	case !policyname.Valid(policy):
		return errors.New("Policy: must be the name of a policy: " + policyname.Rule)
	case len(key) > maxKey || !utf8.ValidString(key):
		return fmt.Errorf("Key: must be at most %d bytes of UTF-8", maxKey)
	case !keyname.CanBe(key):
		return errors.New(`Key: must be a kind, a colon and an identity, such as "ip:192.0.2.1" or "member:7"; leave it out for the whole policy`)
	}
	return nil
}

// checkWho checks who makes a change, and why.
func (c *Change) checkWho() error {
	if c.By == "" {
		return errors.New("By: must say who makes the change")
	}
	for _, text := range []struct {
		field, text string
		most        int
	}{{"By", c.By, maxBy}, {"Why", c.Why, maxWhy}} {
		if len(text.text) > text.most || !utf8.ValidString(text.text) {
			return fmt.Errorf("%s: must be at most %d bytes of UTF-8", text.field, text.most)
		}
	}
	return nil
}

// was returns the limit that the caller takes to be in force. It is zero for any limit, and for that of a LimitFunc.
func (c *Change) was() (ratelimit.Limit, error) {
	if c.Was == "" || c.Was == ofLimitFunc {
		return ratelimit.Limit{}, nil
	}
	limit, err := ratelimit.ParseLimit(c.Was)
	if err != nil {
		return limit, fmt.Errorf("Was: %s", logtext.Show(trimmed(err), maxShown))
	}
	return limit, nil
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
	if len(text) > maxLimit {
		return ratelimit.Limit{}, fmt.Errorf(`limit %q: must be like "60/1m", "60/1m burst 10" or "1000 per month"`, logtext.Show(text, maxLimit))
	}
	l, err := ratelimit.ParseLimit(text)
	if err == nil {
		return l, nil
	}
	if rest := strings.TrimLeft(text, "0"); rest != text && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, " per ")) {
		return l, fmt.Errorf("limit %q: must be above 0: to let no request of a key through, block the key", logtext.Show(text, maxLimit))
	}
	return l, errors.New(logtext.Show(trimmed(err), maxShown))
}

func trimmed(err error) string { return strings.TrimPrefix(err.Error(), "ratelimit: ") }

// same reports whether two limits are one, however they are written.
func same(a, b ratelimit.Limit) bool {
	a.Burst, b.Burst = cmp.Or(a.Burst, a.Rate), cmp.Or(b.Burst, b.Rate)
	return a == b
}

// withinFactors returns the error of withinFactor for the first limit of program that asked is too far from. Places where a
// LimitFunc chooses all limits count only if there is no other.
func withinFactors(policy, key string, program []ratelimit.Limit, asked ratelimit.Limit, most int64) error {
	wrong := FactorError{Policy: policy, Key: key, Asked: asked, Max: most}
	if cmp.Or(program...) == (ratelimit.Limit{}) {
		return &wrong
	}
	for _, limit := range program {
		wrong.Program = limit
		if limit != (ratelimit.Limit{}) && !wrong.within() {
			return &wrong
		}
	}
	return nil
}

// within reports whether Asked is near enough to Program. If not, it sets Field and Factor.
func (e *FactorError) within() bool {
	asked, program := e.Asked, e.Program
	utc := func(zone string) string { return cmp.Or(zone, time.UTC.String()) }
	if asked == ratelimit.Unlimited || program == ratelimit.Unlimited || asked.Period != program.Period || utc(asked.Zone) != utc(program.Zone) {
		return false
	}
	factors := map[string]*big.Rat{"tokens": big.NewRat(asked.Rate, program.Rate)}
	if asked.Period == 0 {
		rate := big.NewRat(asked.Rate, program.Rate)
		factors = map[string]*big.Rat{
			"rate":  rate.Mul(rate, big.NewRat(int64(program.Per), int64(asked.Per))),
			"burst": big.NewRat(cmp.Or(asked.Burst, asked.Rate), cmp.Or(program.Burst, program.Rate)),
		}
	}
	high, low := big.NewRat(e.Max, 1), big.NewRat(1, e.Max)
	worst := 0.0
	for _, field := range slices.Sorted(maps.Keys(factors)) {
		factor := factors[field]
		if factor.Cmp(high) <= 0 && factor.Cmp(low) >= 0 {
			continue
		}
		f, _ := factor.Float64()
		if far := math.Abs(math.Log(f)); far >= worst {
			worst, e.Factor, e.Field = far, f, field
		}
	}
	return worst == 0
}

func quoted(program programLimits) string {
	if len(program) == 0 {
		return "none"
	}
	return `"` + strings.Join(slices.Sorted(maps.Keys(program)), `", "`) + `"`
}
