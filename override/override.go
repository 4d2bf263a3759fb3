// Package override changes limits while the program runs, on all replicas: of a policy, or of one key of it. An override has
// the name of an operator and a reason, and may have an end. Overrides are kept in the Store, so they survive a restart.
// The package is experimental: a minor release may change it.
//
//	overrides, err := override.Watch(ctx, limiter, buckets, override.Config{})
//	err = overrides.Set(ctx, override.Change{Policy: "api", Key: "member:7", Limit: "600/1m", Until: friday, By: "alice"})
//
// # Which limit is in force
//
// The limit of a request is the first of these: the override of its key, the override of its policy, the LimitFunc, and the
// Limit of the policy. Each replica reads the changes once a second. [Overrides.Set] makes a change. So do the admin page,
// with its Config.Overrides, and the command "ratelimit limits set".
//
// # Bounds
//
// A mistake cannot open everything. A change must be forced if it is more than [Config.MaxFactor] times higher or lower than
// what the program sets, or if the two cannot be compared. Each replica checks that again before it follows, also for a
// value that somebody has written to the Store by hand. A malformed value is never followed, and does not stop the others.
// A concurrency limit cannot become a rate or a quota, or the other way round, not even if that is forced.
// There are at most 100,000 overrides.
//
// # Outages
//
// While the Store is unavailable, the overrides in force stay, until their ends. If overrides disappear from the Store, for
// example by FLUSHALL, each replica that has them writes them back. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/changing-limits.md.
package override

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// Config configures [Watch].
type Config struct {
	// MaxFactor is how many times higher or lower than the program's limit an override may be, unless it is forced. It
	// holds for the rate and for the burst, for the tokens of a quota, and for the slots of a concurrency limit. Default 10.
	MaxFactor int64

	// Logger gets a line for each change that is applied or refused, with its policy and key. Default [slog.Default].
	// A slow handler delays nothing else. If 1,000 lines wait, further ones are left out.
	Logger *slog.Logger
}

// A Change sets or ends an override.
type Change struct {
	Policy string
	Key    string    // as the KeyFunc of the policy returns it, such as "member:7" or "ip:192.0.2.1"; "": the whole policy
	Limit  string    // the new limit, as ratelimit.ParseLimit reads it, or Limit.String writes it
	Until  time.Time // when it ends, by the clock of the Store, at most 10 years ahead; zero: never
	Was    string    // the limit that is in force as far as the caller knows; another one is an ErrConflict. "": any
	By     string    // who makes the change; required, at most 128 bytes
	Why    string    // may be empty; at most 256 bytes
	Force  bool      // allow more than MaxFactor, Unlimited, and what cannot be compared
}

// An Entry is a policy or one of its keys, with its limit and the last change. The texts other than Key are safe to show.
type Entry struct {
	Policy  string    `json:"policy"`
	Key     string    `json:"key,omitempty"` // "" for the whole policy
	Program string    `json:"program"`       // the limit that the program sets; "" if it is not known
	InForce string    `json:"in_force"`      // the limit that this replica enforces
	Limit   string    `json:"limit,omitempty"`
	Until   time.Time `json:"until,omitzero"`
	Was     string    `json:"was,omitempty"` // the limit that was in force before
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"` // when it was changed, by the clock of the Store
	Why     string    `json:"why,omitempty"`
	Forced  bool      `json:"forced,omitempty"`
	Refused string    `json:"refused,omitempty"` // why this replica does not follow the override
}

// ErrConflict is the error of a Change whose Was is not the limit in force. Its text has the limit that is.
var ErrConflict = errors.New("the limit was changed meanwhile")

// ErrRefused is the error of a change that is wrong in itself, such as one with a malformed limit. Nothing was changed.
var ErrRefused = errors.New("the change is refused")

// A FactorError is the error of a Change that must be forced. Its limit is more than Config.MaxFactor times higher or lower
// than the program's, or cannot be compared with it. Nothing was changed.
type FactorError struct {
	Policy, Key string
	Program     ratelimit.Limit // zero if a LimitFunc chooses the limits
	Asked       ratelimit.Limit
	Field       string  // "rate", also of a quota or of slots, or "burst", or "" if the two cannot be compared
	Factor      float64 // how many times higher that is; below 1 if lower
	Max         int64
}

func (e *FactorError) Error() string {
	of := "override: " + shownName(e.Policy, e.Key)
	if e.Field == "" {
		return fmt.Sprintf("%s: %v cannot be compared with the program's limit (%s)%s: it must be forced", of, e.Asked, limitText(e.Program), e.difference())
	}
	asked := e.Asked.String()
	if e.Field == "burst" && e.Asked.Burst == 0 {
		asked += ", which is that of its rate,"
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(e.Factor, 'g', 6, 64), 64)
	factor := strconv.FormatFloat(rounded, 'f', -1, 64) // nobody should have to read an exponent in a hurry
	compared := fmt.Sprintf("the %s of %s is %s times that of", e.Field, asked, factor)
	if e.Asked.Per == 0 { // a quota or a concurrency limit
		compared = fmt.Sprintf("%s is %s times", asked, factor)
	}
	return fmt.Sprintf("%s: %s the program's %v: must be at most %d times higher or lower, unless it is forced", of, compared, e.Program, e.Max)
}

// difference says what keeps two limits from being compared, if they do not say so themselves.
func (e *FactorError) difference() string {
	switch {
	case e.Program == ratelimit.Limit{}, e.Asked == ratelimit.Unlimited, e.Program == ratelimit.Unlimited:
		return ""
	case e.Asked.Period() == e.Program.Period():
		return ", because its time zone is another one"
	case e.Asked.Period() == 0:
		return ", because that is a quota and this is a rate"
	case e.Program.Period() == 0:
		return ", because that is a rate and this is a quota"
	}
	return ", because its period is another one"
}
