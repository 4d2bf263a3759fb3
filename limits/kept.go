package limits

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

const (
	maxValue  = 1 << 10 // bytes of a value
	maxValues = 1000    // also of the log
	maxLogged = 50      // changes
	maxBy     = 128     // bytes
	maxWhy    = 256
	maxShown  = 256
)

// A kept is a value of the hash, without its time. An entry of the log has the policy, too.
type kept struct {
	Policy  string `json:"policy,omitempty"`
	Limit   string `json:"limit"`
	Was     string `json:"was"`
	Program string `json:"program,omitempty"` // as far as the one who made the change knew
	By      string `json:"by"`
	Why     string `json:"why"`
	Forced  bool   `json:"forced"`
	Ended   int64  `json:"ended,omitempty"` // in the log: the time of the value that was ended, in microseconds

	at time.Time
}

func (k kept) text() (string, error) {
	text, err := json.Marshal(k)
	if len(text) > maxValue-32 { // for the time
		return "", fmt.Errorf("%w: it has %d bytes as JSON: must have at most %d; give a shorter reason", ErrRefused, len(text), maxValue-32)
	}
	return string(text), err
}

// parseKept parses a value. Its By and Why are safe to show.
func parseKept(text string) (k kept, err error) {
	k, err = decodeKept(text)
	k.By, k.Why = logtext.Show(k.By, maxShown), logtext.Show(k.Why, maxShown)
	return k, err
}

// decodeKept parses a value that is to be kept again.
func decodeKept(text string) (k kept, err error) {
	if len(text) > maxValue {
		return kept{}, fmt.Errorf("the value has %d bytes: must have at most %d", len(text), maxValue)
	}
	malformed := errors.New(`the value is malformed: must be like 1795367301123456 {"limit":"120/1m","by":"alice"}, the time in microseconds and an object`)
	at, object, ok := strings.Cut(text, " ")
	µs, err := strconv.ParseInt(at, 10, 64)
	if err == nil && object == "bytes" { // a Keeper's, instead of a long value
		return kept{}, fmt.Errorf("the value has %d bytes: must have at most %d", µs, maxValue)
	}
	if !ok || err != nil || µs < 0 || µs > maxTime {
		return kept{}, malformed
	}
	if err := json.Unmarshal([]byte(object), &k); err != nil {
		return kept{}, malformed
	}
	k.at = time.UnixMicro(µs).UTC()
	return k, nil
}

// maxTime is the end of the year 9999, beyond which a time has no JSON.
const maxTime = 253402300799_000000

// A verdict is what a replica makes of a value.
type verdict struct {
	kept
	raw     string
	limit   ratelimit.Limit
	refused error // nil: it is followed
}

// programLimits are the limits that a program sets, by policy: more than one if the policy is mounted with different ones.
// The zero Limit stands for a policy whose LimitFunc chooses all limits.
type programLimits map[string][]ratelimit.Limit

// shown returns the limit of a policy to show: the first, or the zero Limit if there is none.
func (p programLimits) shown(policy string) ratelimit.Limit { return cmp.Or(p[policy]...) }

// judge says whether raw, the value of a policy, is followed. program has the limits that the program sets, if known.
func judge(policy, raw string, program []ratelimit.Limit, maxFactor int64) (v verdict) {
	v.raw = raw
	if v.kept, v.refused = parseKept(raw); v.refused != nil {
		return v
	}
	if v.limit, v.refused = parseLimit(v.Limit); v.refused != nil {
		return v
	}
	switch {
	case len(program) == 0:
		v.refused = errOrphan
	case cmp.Or(program...) == ratelimit.Limit{}:
		v.refused = errNoLimit
	case !v.Forced:
		v.refused = withinFactors(policy, program, v.limit, maxFactor)
	}
	return v
}

var (
	errUnknown = errors.New("the program has no policy of this name")
	errOrphan  = fmt.Errorf("%w: end the change, unless a program will have the policy", errUnknown)
	errNoLimit = errors.New("the policy has no Policy.Limit: its LimitFunc chooses all limits, so change them in the program")
)

func parseLimit(text string) (ratelimit.Limit, error) {
	if len(text) > 64 {
		return ratelimit.Limit{}, fmt.Errorf(`limit %q: must be like "60/1m" or "60/1m burst 10"`, logtext.Show(text, 64))
	}
	l, err := ratelimit.ParseLimit(text)
	if err != nil {
		return l, errors.New(logtext.Show(strings.TrimPrefix(err.Error(), "ratelimit: "), maxShown))
	}
	if l == ratelimit.Unlimited {
		return l, errors.New(`limit "unlimited": must be like "60/1m" or "60/1m burst 10"`)
	}
	return l, nil
}

// same reports whether two limits are one, however they are written.
func same(a, b ratelimit.Limit) bool {
	a.Burst, b.Burst = cmp.Or(a.Burst, a.Rate), cmp.Or(b.Burst, b.Rate)
	return a == b
}

// withinFactors returns the error of withinFactor for the first limit of program that asked is too far from.
func withinFactors(policy string, program []ratelimit.Limit, asked ratelimit.Limit, most int64) error {
	for _, limit := range program {
		if limit == (ratelimit.Limit{}) {
			continue // asked does not apply there
		}
		if err := withinFactor(policy, limit, asked, most); err != nil {
			return err
		}
	}
	return nil
}

// withinFactor returns a *FactorError if the rate or the burst of asked is too far from that of program.
func withinFactor(policy string, program, asked ratelimit.Limit, most int64) error {
	wrong := &FactorError{Policy: policy, Program: program, Asked: asked, Max: most}
	if program == ratelimit.Unlimited {
		return wrong
	}
	rate := big.NewRat(asked.Rate, program.Rate)
	rate.Mul(rate, big.NewRat(int64(program.Per), int64(asked.Per)))
	burst := big.NewRat(cmp.Or(asked.Burst, asked.Rate), cmp.Or(program.Burst, program.Rate))
	high, low := big.NewRat(most, 1), big.NewRat(1, most)
	worst := 0.0
	for i, factor := range []*big.Rat{rate, burst} {
		if factor.Cmp(high) <= 0 && factor.Cmp(low) >= 0 {
			continue
		}
		f, _ := factor.Float64()
		if far := math.Abs(math.Log(f)); far > worst {
			worst, wrong.Factor, wrong.Field = far, f, [...]string{"rate", "burst"}[i]
		}
	}
	if worst == 0 {
		return nil
	}
	return wrong
}

// endedIn reports whether the log of changes in a hash says that the value of policy of the time at was ended. The clock may
// have been set back since, or be another one after a failover.
func endedIn(held map[string]string, policy string, at time.Time) bool {
	for i := range maxLogged {
		k, err := parseKept(held["#"+strconv.Itoa(i)])
		if err == nil && k.Policy == policy && k.Limit == "" && (k.at.After(at) || k.Ended == at.UnixMicro()) {
			return true
		}
	}
	return false
}

// history returns the log of changes in a hash, the newest first. Malformed entries are left out.
func history(held map[string]string) (list []Logged) {
	for i := range maxLogged {
		k, err := parseKept(held["#"+strconv.Itoa(i)])
		if err != nil || k.Policy == "" {
			continue
		}
		list = append(list, Logged{
			At: k.at, Policy: logtext.Show(k.Policy, 64), Limit: logtext.Show(k.Limit, 64), Was: logtext.Show(k.Was, 64),
			By: k.By, Why: k.Why, Forced: k.Forced,
		})
	}
	slices.SortStableFunc(list, func(a, b Logged) int { return b.At.Compare(a.At) })
	return list
}
