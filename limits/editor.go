package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
)

// An Editor reads and changes the kept limits without a Limiter, as the command does. In a program use [Watch].
type Editor struct {
	Keeper Keeper

	// Program has the limits that the program sets, by policy. If it is nil, the program's limit is what the last
	// change has noted, and if there is none, Change.Was, which is then required.
	Program map[string]ratelimit.Limit

	// MaxFactor is as in [Config].
	MaxFactor int64

	program programLimits     // instead of Program
	lost    map[string]string // values that are in force, although they have disappeared
}

// load returns the kept limits, or an error that says what to do.
func load(ctx context.Context, k Keeper) (map[string]string, error) {
	held, err := k.LoadLimits(ctx)
	switch {
	case err != nil:
		return nil, explained(err)
	case len(held) > maxValues:
		return nil, fmt.Errorf("limits: the hash has %d fields: must have at most %d; remove what does not belong there", len(held), maxValues)
	}
	return held, nil
}

// explained returns an error of a Keeper, with a remedy if a right is missing or somebody has written another value.
func explained(err error) error {
	text := err.Error()
	if strings.Contains(text, "WRONGTYPE") {
		return fmt.Errorf("limits: %w: the key of the limits, which is the prefix and :limits, must be a hash: delete or rename it", err)
	}
	for _, missing := range []string{"NOPERM", "no permissions", "No permissions", "ACL failure", "can't run this command"} {
		if strings.Contains(text, missing) {
			return fmt.Errorf("limits: %w: the user of Redis needs the rights +hlen, +hkeys, +hstrlen and +hdel beside those of redisstore", err)
		}
	}
	return fmt.Errorf("limits: %w", err)
}

// programs returns the limits of the program, or nil if they are not known.
func (e *Editor) programs() programLimits {
	if e.program != nil || e.Program == nil {
		return e.program
	}
	limits := make(programLimits)
	for name, limit := range e.Program {
		limits[name] = []ratelimit.Limit{limit}
	}
	return limits
}

// List returns the kept limits and the limits of Program, by policy. An entry's InForce is what a replica enforces whose
// program has these limits.
func (e *Editor) List(ctx context.Context) ([]Entry, error) {
	held, err := load(ctx, e.Keeper)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for name := range held {
		names[name] = !strings.HasPrefix(name, "#")
	}
	for name := range e.Program {
		names[name] = true
	}
	var list []Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			raw, has := held[name]
			program, v := e.judge(name, raw, has, "")
			list = append(list, entry(name, program, v))
		}
	}
	return list, nil
}

// entry returns the entry of a policy. v is nil if no value is kept.
func entry(name string, program []ratelimit.Limit, v *verdict) Entry {
	out := Entry{Policy: logtext.Show(name, 64)}
	if len(program) > 0 {
		out.Program = "of LimitFunc"
		if limit := cmp.Or(program...); limit != (ratelimit.Limit{}) {
			out.Program = limit.String()
		}
		out.InForce = out.Program
	}
	if v == nil {
		return out
	}
	out.By, out.At, out.Why, out.Forced = v.By, v.at, v.Why, v.Forced
	if v.refused != nil {
		out.Refused = v.refused.Error()
	} else {
		out.InForce = v.limit.String()
	}
	return out
}

// judge judges the value of a policy. If has is false, there is no value, and no verdict. An empty value gets a verdict. If
// the limit of the program is not known, was is used instead.
func (e *Editor) judge(name, raw string, has bool, was string) (program []ratelimit.Limit, v *verdict) {
	programs := e.programs()
	program = programs[name]
	if programs == nil {
		k, _ := parseKept(raw)
		if limit, err := ratelimit.ParseLimit(k.Program); err == nil {
			program = []ratelimit.Limit{limit}
		} else if limit, err := parseLimit(was); err == nil {
			program = []ratelimit.Limit{limit}
		}
	}
	if !has {
		return program, nil
	}
	judged := judge(name, raw, program, cmp.Or(e.MaxFactor, defaultMaxFactor))
	if programs == nil && judged.refused == errOrphan {
		judged.refused = ErrNotKnown
	}
	return program, &judged
}

// History returns the log of the last 50 changes, the newest first.
func (e *Editor) History(ctx context.Context) ([]Logged, error) {
	held, err := load(ctx, e.Keeper)
	return history(held), err
}

// Set makes a change. Its errors are those of [Limits.Set].
func (e *Editor) Set(ctx context.Context, c Change) error {
	err := checkNames(c.Policy, c.By, c.Why)
	if err == nil && !policyname.Valid(c.Policy) { // End takes any name, to remove what was written by hand
		err = errors.New("Policy: must be the name of a policy: " + policyname.Rule)
	}
	if err != nil {
		return c.refuse(err)
	}
	asked, err := parseLimit(c.Limit)
	if err != nil {
		return c.refuse(err)
	}
	if err := c.checkWas(); err != nil {
		return err
	}
	held, err := load(ctx, e.Keeper)
	if err != nil {
		return err
	}
	raw, inForce, has := e.value(held, c.Policy)
	programs := e.programs()
	program, v := e.judge(c.Policy, inForce, has, c.Was)
	switch {
	case len(program) == 0 && programs != nil:
		return c.refuse(fmt.Errorf("%w: it has %s", errUnknown, quoted(programs)))
	case len(program) == 0:
		return c.refuse(ErrNotKnown)
	case cmp.Or(program...) == ratelimit.Limit{}:
		return c.refuse(errNoLimit)
	}
	was := v.inForce(program)
	if err := c.conflict(was); err != nil {
		return err
	}
	beyond := withinFactors(c.Policy, program, asked, cmp.Or(e.MaxFactor, defaultMaxFactor))
	if beyond != nil && !c.Force {
		return beyond
	}
	return e.swap(ctx, c.Policy, raw, &kept{
		Limit: asked.String(), Was: was.String(), Program: cmp.Or(program...).String(), By: c.By, Why: c.Why,
		Forced: beyond != nil || c.Force && programs == nil, // the replicas may have a program of another limit
	}, kept{})
}

// End ends a change. Its errors are those of [Limits.End].
func (e *Editor) End(ctx context.Context, c Change) error {
	if err := checkNames(c.Policy, c.By, c.Why); err != nil {
		return c.refuse(err)
	}
	if err := c.checkWas(); err != nil {
		return err
	}
	held, err := load(ctx, e.Keeper)
	if err != nil {
		return err
	}
	raw, inForce, has := e.value(held, c.Policy)
	if !has {
		return c.refuse(errors.New("its limit is not changed: there is nothing to end"))
	}
	program, v := e.judge(c.Policy, inForce, has, "")
	if len(program) > 0 {
		if err := c.conflict(v.inForce(program)); err != nil {
			return err
		}
	}
	ended := kept{Was: logtext.Show(v.Limit, 64), By: c.By, Why: c.Why}
	if !v.at.IsZero() {
		ended.Ended = v.at.UnixMicro()
	}
	return e.swap(ctx, c.Policy, raw, nil, ended)
}

// value returns the kept value of a policy, and the value that is followed. The kept value may be empty, if somebody has
// written it by hand. The followed value may have disappeared from the hash.
func (e *Editor) value(held map[string]string, policy string) (raw, followed string, has bool) {
	raw, has = held[policy]
	if lost := e.lost[policy]; raw == "" && lost != "" {
		return raw, lost, true
	}
	return raw, raw, has
}

func (c *Change) refuse(err error) error {
	return fmt.Errorf("limits: %s: %w: %w", logtext.Show(c.Policy, 64), ErrRefused, err)
}

// checkWas returns an error if c.Was is malformed.
func (c *Change) checkWas() error {
	if c.Was == "" {
		return nil
	}
	if _, err := ratelimit.ParseLimit(c.Was); err != nil {
		return c.refuse(fmt.Errorf("the limit before: %s", logtext.Show(err.Error(), maxShown)))
	}
	return nil
}

// conflict returns an ErrConflict if c.Was, which is well formed, is not the limit in force.
func (c *Change) conflict(inForce ratelimit.Limit) error {
	if was, _ := ratelimit.ParseLimit(c.Was); c.Was != "" && !same(was, inForce) {
		return fmt.Errorf("limits: %s: %w: it is %v, not %v", c.Policy, ErrConflict, inForce, was)
	}
	return nil
}

// inForce returns the limit that is enforced where the program has these limits. v is nil if no value is kept.
func (v *verdict) inForce(program []ratelimit.Limit) ratelimit.Limit {
	if v != nil && v.refused == nil {
		return v.limit
	}
	return cmp.Or(program...)
}

// swap replaces the value of a policy, which is raw, by k, or by none. ended is the entry of the log for none.
func (e *Editor) swap(ctx context.Context, policy, raw string, k *kept, ended kept) error {
	now, logged := "", ended
	if k != nil {
		var err error
		if now, err = k.text(); err != nil {
			return fmt.Errorf("limits: %s: %w", policy, err)
		}
		logged = *k
	}
	logged.Policy = policy
	line, err := logged.text()
	if err != nil {
		return fmt.Errorf("limits: %s: %w", policy, err)
	}
	held, err := e.Keeper.SwapLimit(ctx, policy, raw, now, line)
	if err != nil {
		return explained(err)
	}
	if _, value, _ := strings.Cut(held, " "); value != now {
		return fmt.Errorf("limits: %s: %w: it is %s", policy, ErrConflict, heldText(held))
	}
	return nil
}

// heldText says what a value is.
func heldText(raw string) string {
	if raw == "" {
		return "that of the program"
	}
	k, err := parseKept(raw)
	if err != nil {
		return "not readable: " + err.Error()
	}
	return fmt.Sprintf("%s, by %s", logtext.Show(k.Limit, 64), k.By)
}

// checkNames checks the texts of a change.
func checkNames(policy, by, why string) error {
	if policy == "" || len(policy) > 63 || strings.HasPrefix(policy, "#") {
		return errors.New("Policy: must be the name of a policy")
	}
	if by == "" {
		return errors.New("By: must say who makes the change")
	}
	for _, text := range []struct {
		field, text string
		most        int
	}{{"By", by, maxBy}, {"Why", why, maxWhy}} {
		if len(text.text) > text.most || !utf8.ValidString(text.text) {
			return fmt.Errorf("%s: must be at most %d bytes of UTF-8", text.field, text.most)
		}
	}
	return nil
}

func quoted(program programLimits) string {
	if len(program) == 0 {
		return "none"
	}
	return `"` + strings.Join(slices.Sorted(maps.Keys(program)), `", "`) + `"`
}
