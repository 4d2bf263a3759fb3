package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/configfault"
	"github.com/go-tokenbucket/ratelimit/internal/endtime"
	"github.com/go-tokenbucket/ratelimit/internal/keyname"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/override"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// limitsWords say what the limits of the commands are.
const limitsWords = `The limits are those that package override keeps in Redis, for programs that call override.Watch. All replicas
follow a change within two seconds, and it survives their restart. With -key it is for one key of the policy.`

// maxHistory is how many changes limits get shows.
const maxHistory = 10

var limitsGetCommand = &command{
	name:     "limits get",
	args:     "[POLICY]",
	short:    "Shows the limits that were changed, by whom, and the last changes.",
	long:     limitsWords + ` With -policies it also shows the limits that were not changed, and which changes the replicas refuse.`,
	examples: []string{"ratelimit limits get -redis redis://localhost:6379", "ratelimit limits get -policies limits.yaml api"},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		return func(ctx context.Context, e *env) (err error) {
			policy := ""
			if len(e.args) > 0 {
				policy, err = e.one("POLICY", "api")
			}
			if err != nil {
				return err
			}
			return l.with(ctx, policy, e, func(ctx context.Context, c *connection, o *override.Overrides) error {
				f, err := c.replicas(ctx)
				if err == nil {
					l.running = programLimits(f.Merged())
					writeDifferences(o, f.Replicas, e)
				}
				return err
			})
		}
	},
}

var limitsSetCommand = &command{
	name:  "limits set",
	args:  "POLICY LIMIT",
	short: "Changes the limit of a policy, or of one of its keys, on all replicas.",
	long: limitsWords + ` A limit that is more than 10 times higher or lower than the program's is refused without -force,
by this command and by each replica. The limit of the program comes from -policies. Without it, -was stands in for it.`,
	examples: []string{
		`ratelimit limits set api 120/1m burst 20 -policies limits.yaml -why "sale until Sunday"`,
		`ratelimit limits set api 600/1m -key member:7 -until 72h -policies limits.yaml -why launch`,
	},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		was := f.text("was", "`LIMIT` that is in force. If another one is, nothing changes")
		force := f.is("force", "allow a limit that is more than 10 times higher or lower than the program's, or that cannot be compared; and "+forceWords)
		until := f.text("until", "`TIME` when it ends: "+endtime.Rule+" (default: it has no end)")
		by, why := defineWho(f, "the change")
		return func(ctx context.Context, e *env) error {
			if len(e.args) < 2 {
				return wrongUsage("needs POLICY and LIMIT, such as api 120/1m burst 20")
			}
			if !policyname.Valid(e.args[0]) {
				return wrongUsage("POLICY: must be the name of a policy: %s", policyname.Rule)
			}
			c := override.Change{Policy: e.args[0], Key: *l.key, Limit: strings.Join(e.args[1:], " "), Was: *was, Why: *why, Force: *force}
			c.By = cmp.Or(*by, operator(e.getenv))
			for name, text := range map[string]string{"LIMIT": c.Limit, "-was": c.Was} {
				if _, err := ratelimit.ParseLimit(text); err != nil && (text != "" || name == "LIMIT") {
					block := ""
					if text := err.Error(); strings.Contains(text, `rate "0"`) || strings.Contains(text, `number "0"`) {
						block = "; to let no request of a key through, use ratelimit block"
					}
					return wrongUsage("%s: %s%s", name, trim(err), block)
				}
			}
			var err error
			if c.Until, err = endtime.Parse(*until, time.Now()); err != nil {
				return wrongUsage("-until: %v", err)
			} else if now := time.Now(); *until != "" && (!c.Until.After(now) || c.Until.After(now.AddDate(10, 0, 0))) {
				return wrongUsage("-until: must be after now, and at most 10 years ahead")
			}
			return l.with(ctx, c.Policy, e, func(ctx context.Context, to *connection, o *override.Overrides) error {
				if !*force {
					if err := l.checkKnown(ctx, to, c.Policy); err != nil {
						return err
					}
				}
				return o.Set(ctx, c)
			})
		}
	},
}

var limitsEndCommand = &command{
	name:     "limits end",
	args:     "POLICY",
	short:    "Ends a change: the limit of the program is in force again.",
	long:     limitsWords,
	examples: []string{`ratelimit limits end api -redis redis://localhost:6379 -why "the sale is over"`},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		by, why := defineWho(f, "the change")
		return func(ctx context.Context, e *env) error {
			policy, err := e.one("POLICY", "api")
			if err != nil {
				return err
			}
			c := override.Change{Policy: policy, Key: *l.key, By: cmp.Or(*by, operator(e.getenv)), Why: *why}
			return l.with(ctx, policy, e, func(ctx context.Context, _ *connection, o *override.Overrides) error {
				return o.End(ctx, c)
			})
		}
	},
}

func defineWho(f *flags, what string) (by, why *string) {
	return f.text("by", "`NAME` of who makes "+what+", for those who see it later (default cli:user@host). It is not checked"),
		f.text("why", "`TEXT` for those who see "+what+" later")
}

// operator names the user of this machine.
func operator(getenv func(string) string) string {
	name := getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	text := "cli:" + cmp.Or(name, "unknown") + "@" + cmp.Or(host, "unknown")
	return strings.ToValidUTF8(text[:min(len(text), 128)], "")
}

// limitsFlags are those of all commands on limits.
type limitsFlags struct {
	redis                *redisFlags
	key, policies, names *string
	program              map[string][]ratelimit.Limit // of the file, nil without one
	running              map[string]string            // limits of the programs that run, as far as they publish them
}

func defineLimits(f *flags) *limitsFlags {
	l := &limitsFlags{redis: defineRedis(f), policies: f.text("policies", "`FILE` with the policies of the program"), names: defineNames(f)}
	l.key = f.text("key", "`KEY` whose limit it is, as the KeyFunc of the policy returns it, such as member:7 or ip:192.0.2.1 (default: the limit of the policy)")
	return l
}

// with calls do, and shows the limits afterwards: those of a policy, or all if policy is "".
func (l *limitsFlags) with(ctx context.Context, policy string, e *env, do func(context.Context, *connection, *override.Overrides) error) error {
	if !keyname.CanBe(*l.key) {
		return wrongUsage("-key: must be a kind, a colon and an identity, such as member:7 or ip:192.0.2.1")
	}
	if *l.policies != "" {
		f, err := policyfile.Load(*l.policies, registry(*l.names))
		if err != nil {
			return fmt.Errorf("-policies: %w", err)
		}
		l.program = make(map[string][]ratelimit.Limit)
		for _, m := range f.Mounts() { // also those with functions of the program
			l.program[m.Policy.Name] = append(l.program[m.Policy.Name], m.Policy.Limit)
		}
	}
	return l.redis.with(ctx, func(ctx context.Context, c *connection) error {
		overrides, err := override.Edit(ctx, c.store, l.program)
		if err == nil {
			err = do(ctx, c, overrides)
		}
		if err == nil {
			l.get(overrides, policy, e)
		}
		return explainLimits(err, c)
	})
}

// checkKnown returns an error if the limit that is changed would be in force for no request. A file has all policies.
func (l *limitsFlags) checkKnown(ctx context.Context, c *connection, policy string) error {
	k, err := c.published(ctx)
	if err != nil {
		return err
	}
	l.running = k.limits
	if l.program != nil {
		k.policies = slices.Sorted(maps.Keys(l.program))
	}
	if err = k.checkPolicy("POLICY", policy); err == nil && *l.key != "" {
		err = k.checkKey("-key", *l.key)
	}
	return err
}

func explainLimits(err error, c *connection) error {
	var factor *override.FactorError
	fault, ofField := errors.AsType[configfault.Fault](err)
	_, wrong := errors.AsType[*usageError](err)
	switch {
	case err == nil || wrong:
		return err
	case ofField:
		return wrongUsage("-%s: %s", strings.ToLower(fault.Field), fault.Text)
	case errors.As(err, &factor):
		return &statusError{found, fmt.Errorf("%w, by -force", trim(err))}
	case errors.Is(err, override.ErrConflict) || errors.Is(err, override.ErrRefused):
		return &statusError{found, trim(err)}
	default:
		return c.unanswered(err, false)
	}
}

// get writes the limits of all policies, or those of one, and of one key with -key.
func (l *limitsFlags) get(overrides *override.Overrides, policy string, e *env) {
	asked := func(ofPolicy, key string) bool {
		return (policy == "" || ofPolicy == policy) && (*l.key == "" || key == *l.key)
	}
	list, history := overrides.List(asked), overrides.History()
	history = slices.DeleteFunc(history, func(e override.Entry) bool { return !asked(e.Policy, e.Key) })
	table := tabwriter.NewWriter(e.out, 0, 0, 3, ' ', 0)
	defer table.Flush()
	for i := range list {
		if list[i].Key == "" {
			list[i].Program = cmp.Or(list[i].Program, l.running[list[i].Policy])
		}
	}
	if len(list) == 0 {
		fmt.Fprint(table, "Redis has no changed limit\n")
	} else {
		writeLimits(table, list, e)
	}
	if len(history) > 0 {
		fmt.Fprint(table, "\nLast changes\n")
		writeHistory(table, history[:min(len(history), maxHistory)], e)
	}
}

// named names a policy, and the key if the limit is that of one. It takes about a third of a terminal.
func (e *env) named(o override.Entry) string {
	policy := logtext.Printable(o.Policy)
	return strings.TrimSpace(policy + " " + e.fit(o.Key, 2*e.columns/3+len(policy)+1))
}

// writeLimits writes texts that package override has cut and escaped.
func writeLimits(table io.Writer, list []override.Entry, e *env) {
	fmt.Fprint(table, "policy\tprogram\tin force\tchanged\n")
	for _, l := range list {
		changed := ""
		if !l.At.IsZero() {
			changed = l.At.UTC().Format(time.RFC3339) + " " + who(l.By, l.Why)
		}
		if l.Forced {
			changed += e.paint.In(report.Red, " (forced)")
		}
		if l.Refused != "" {
			changed += e.paint.In(report.Red, " (not followed: "+logtext.Printable(l.Refused)+")")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.named(l), limitOr(l.Program, "?"), limitOr(l.InForce, "?")+ending(l), strings.TrimSpace(changed))
	}
}

func writeHistory(table io.Writer, list []override.Entry, e *env) {
	for _, c := range list {
		change := limitOr(c.Was, "?") + " ended"
		if c.Limit != "" {
			change = limitOr(c.Was, "?") + " to " + logtext.Printable(c.Limit) + ending(c)
		}
		if c.Forced {
			change += " (forced)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.At.UTC().Format(time.RFC3339), e.named(c), change, who(c.By, c.Why))
	}
}

// ending says when a limit ends, if it does.
func ending(o override.Entry) string {
	if o.Until.IsZero() {
		return ""
	}
	return " until " + o.Until.UTC().Format(time.RFC3339)
}

func limitOr(limit, instead string) string { return cmp.Or(logtext.Printable(limit), instead) }

// who says who made a change, and why.
func who(by, why string) string {
	if why != "" {
		why = ": " + logtext.Printable(why)
	}
	return "by " + logtext.Printable(by) + why
}
