// Package limits changes the limits of policies while the program runs, on all replicas. The changes are kept in Redis, so
// they survive a restart. The package is experimental: a minor release may change it.
//
//	buckets := ratelimit.Must(redisstore.New(client, redisstore.Config{}))
//	limiter, err := ratelimit.New(ratelimit.Config{Store: buckets, Policies: policies})
//	// … mount it …
//	changed, err := limits.Watch(ctx, limiter, buckets, limits.Config{})
//
// Each replica reads the changes once a second. [Limits.Set] makes a change, and so do the admin page, with its
// Config.Limits, and the command "ratelimit limits set".
//
// # Bounds
//
// A mistake cannot open everything. A change is refused if its rate or its burst is more than [Config.MaxFactor] times
// higher or lower than what the program sets, unless it is forced. Each replica checks that again before it follows, also
// for a value that somebody has written to Redis by hand. A malformed value is never followed, and does not stop the
// others.
//
// # Failures
//
// While Redis is unavailable, the limits that are in force stay. If the kept limits disappear from Redis, for example by
// FLUSHALL, they stay in force until the program restarts. See
// https://github.com/go-tokenbucket/ratelimit/blob/main/docs/changing-limits.md.
package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A Keeper keeps the changed limits for all replicas. A *redisstore.Store is one. Values are texts that only this package
// reads.
type Keeper interface {
	// LoadLimits returns all values by policy, and those of the log of changes, whose names begin with "#". Instead of
	// a value of more than 1,024 bytes, it may return the length, such as "2048 bytes", also to SwapLimit.
	LoadLimits(ctx context.Context) (map[string]string, error)

	// SwapLimit replaces the value of policy by now, if it is was. "" stands for no value, in was and in now. It
	// returns the value that is then kept: if that is not the new one, nothing was changed. The store adds the time
	// of the change in front of a value, in microseconds, and a space. entry is added to the log of changes.
	SwapLimit(ctx context.Context, policy, was, now, entry string) (held string, err error)
}

// Config configures [Watch].
type Config struct {
	// Every is the time between two looks. Default 1 s, which is also the longest.
	Every time.Duration

	// MaxFactor bounds how much higher or lower than the program's limit a changed limit may be, in its rate and in
	// its burst, unless it is forced. Default 10.
	MaxFactor int64

	// Logger gets a line for each change that is applied or refused. Default [slog.Default]. A goroutine writes the
	// lines in order, so a slow handler delays nothing else. If 1,000 lines wait, further ones are left out.
	Logger *slog.Logger
}

const (
	defaultEvery     = time.Second
	defaultMaxFactor = 10
)

// A Change sets or ends the limit of a policy.
type Change struct {
	Policy string
	Limit  string // the new limit, as ratelimit.ParseLimit reads it
	Was    string // the limit that is in force as far as the caller knows; another one is an ErrConflict. "": any
	By     string // who makes the change; required, at most 128 bytes
	Why    string // may be empty; at most 256 bytes
	Force  bool   // allow more than MaxFactor
}

// An Entry is a policy, its limit and who changed it.
type Entry struct {
	Policy  string    `json:"policy"`
	Program string    `json:"program"`  // the limit that the program sets; "" if it is not known
	InForce string    `json:"in_force"` // the limit that this replica enforces
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Why     string    `json:"why,omitempty"`
	Forced  bool      `json:"forced,omitempty"`
	Refused string    `json:"refused,omitempty"` // why this replica does not follow the kept limit
}

// A Logged is a change in the log, which has the last 50.
type Logged struct {
	At     time.Time `json:"at"`
	Policy string    `json:"policy"`
	Limit  string    `json:"limit"` // "" if the change was ended: the program's limit
	Was    string    `json:"was"`
	By     string    `json:"by"`
	Why    string    `json:"why,omitempty"`
	Forced bool      `json:"forced,omitempty"`
}

// ErrConflict is the error of a Change whose Was is not the limit in force. Its text has the limit that is.
var ErrConflict = errors.New("the limit was changed meanwhile")

// ErrRefused is the error of a change that is wrong in itself, such as one with a malformed limit. Nothing was changed.
var ErrRefused = errors.New("the change is refused")

// ErrNotKnown is the error of a Change by an [Editor] that knows neither the program's limit nor the one in force. It is an
// ErrRefused, too.
var ErrNotKnown = errors.New("the program's limit is not known: pass its policies, or the limit that is in force")

// A FactorError is the error of a Change that would make a limit more than Config.MaxFactor times higher or lower than the
// program's. Nothing was changed.
type FactorError struct {
	Policy         string
	Program, Asked ratelimit.Limit
	Field          string  // "rate" or "burst"
	Factor         float64 // by which that is higher; below 1 if lower
	Max            int64
}

// factor returns the factor without an exponent, which nobody should have to read in a hurry. It has as many digits as it
// takes to be above Max: 601/1m is 10.02 times 60/1m, and not 10.
func (e *FactorError) factor() string {
	for digits := 3; ; digits++ {
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(e.Factor, 'g', digits, 64), 64)
		if most := float64(e.Max); rounded > most || rounded*most < 1 || digits == 17 {
			return strconv.FormatFloat(rounded, 'f', -1, 64)
		}
	}
}

func (e *FactorError) Error() string {
	if e.Program == ratelimit.Unlimited {
		return fmt.Sprintf("limits: %s: the program sets no limit: %v must be forced", e.Policy, e.Asked)
	}
	asked := e.Asked.String()
	if e.Field == "burst" && e.Asked.Burst == 0 {
		asked += ", which is that of its rate,"
	}
	return fmt.Sprintf("limits: %s: the %s of %s is %s times that of the program's %v: must be at most %d times higher or lower, unless it is forced", e.Policy, e.Field, asked, e.factor(), e.Program, e.Max)
}
