package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/limits"
	"github.com/go-tokenbucket/ratelimit/policyfile"
)

// limitsWords say what the limits of the commands are.
const limitsWords = `The limits are those that package limits keeps in Redis, for programs that call limits.Watch. All replicas follow a
change within two seconds, and it survives their restart.`

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
			return l.with(ctx, policy, e, func(context.Context, *limits.Editor) error { return nil })
		}
	},
}

var limitsSetCommand = &command{
	name:  "limits set",
	args:  "POLICY LIMIT",
	short: "Changes the limit of a policy on all replicas.",
	long: limitsWords + ` A limit that is more than 10 times higher or lower than the program's is refused without -force,
by this command and by each replica. The limit of the program comes from -policies, or from the last change. For a policy
that was never changed, -was stands in for it.`,
	examples: []string{`ratelimit limits set api 120/1m burst 20 -policies limits.yaml -why "sale until Sunday"`},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		was := f.text("was", "`LIMIT` that is in force. If another one is, nothing changes")
		force := f.is("force", "allow a limit that is more than 10 times higher or lower than the program's")
		by, why := defineWho(f, "the change")
		return func(ctx context.Context, e *env) error {
			if len(e.args) < 2 {
				return wrongUsage("needs POLICY and LIMIT, such as api 120/1m burst 20")
			}
			c := limits.Change{Policy: e.args[0], Limit: strings.Join(e.args[1:], " "), Was: *was, Why: *why, Force: *force}
			c.By = cmp.Or(*by, operator(e.getenv))
			for name, text := range map[string]string{"LIMIT": c.Limit, "-was": c.Was} {
				if _, err := ratelimit.ParseLimit(text); err != nil && (text != "" || name == "LIMIT") {
					return wrongUsage("%s: %s", name, trim(err))
				}
			}
			return l.with(ctx, c.Policy, e, func(ctx context.Context, editor *limits.Editor) error { return editor.Set(ctx, c) })
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
			c := limits.Change{Policy: policy, By: cmp.Or(*by, operator(e.getenv)), Why: *why}
			return l.with(ctx, policy, e, func(ctx context.Context, editor *limits.Editor) error { return editor.End(ctx, c) })
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
	redis           *redisFlags
	policies, names *string
}

func defineLimits(f *flags) *limitsFlags {
	return &limitsFlags{redis: defineRedis(f), policies: f.text("policies", "`FILE` with the policies of the program"), names: defineNames(f)}
}

// with calls do, and shows the limits afterwards: that of a policy, or of all if policy is "".
func (l *limitsFlags) with(ctx context.Context, policy string, e *env, do func(context.Context, *limits.Editor) error) error {
	editor := new(limits.Editor)
	if *l.policies != "" {
		f, err := policyfile.Load(*l.policies, registry(*l.names))
		if err != nil {
			return fmt.Errorf("-policies: %w", err)
		}
		editor.Program = make(map[string]ratelimit.Limit)
		for _, m := range f.Mounts() { // also those with functions of the program
			editor.Program[m.Policy.Name] = m.Policy.Limit
		}
	}
	return l.redis.with(ctx, func(ctx context.Context, c *connection) error {
		editor.Keeper = c.store
		err := do(ctx, editor)
		if err == nil {
			err = getLimits(ctx, editor, policy, e)
		}
		return explainLimits(err, c)
	})
}

func explainLimits(err error, c *connection) error {
	var factor *limits.FactorError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &factor):
		return &statusError{found, fmt.Errorf("%w, by -force", trim(err))}
	case errors.Is(err, limits.ErrNotKnown):
		return &statusError{found, fmt.Errorf("%w: by -policies, or by -was", trim(err))}
	case errors.Is(err, limits.ErrConflict) || errors.Is(err, limits.ErrRefused):
		return &statusError{found, trim(err)}
	default:
		return c.unanswered(err, false)
	}
}

// getLimits writes the limits, or that of a policy.
func getLimits(ctx context.Context, editor *limits.Editor, policy string, e *env) error {
	list, err := editor.List(ctx)
	if err != nil {
		return err
	}
	history, err := editor.History(ctx)
	if err != nil {
		return err
	}
	if policy != "" {
		list = slices.DeleteFunc(list, func(entry limits.Entry) bool { return entry.Policy != policy })
		history = slices.DeleteFunc(history, func(change limits.Logged) bool { return change.Policy != policy })
	}
	table := tabwriter.NewWriter(e.out, 0, 0, 3, ' ', 0)
	defer table.Flush()
	if len(list) == 0 {
		fmt.Fprint(table, "no changed limit is in force\n")
	} else {
		writeLimits(table, list, e.paint)
	}
	if len(history) > 0 {
		fmt.Fprint(table, "\nLast changes\n")
		writeHistory(table, history[:min(len(history), maxHistory)])
	}
	return nil
}

// writeLimits writes texts that package limits has cut and escaped.
func writeLimits(table io.Writer, list []limits.Entry, p report.Paint) {
	fmt.Fprint(table, "policy\tprogram\tin force\tchanged\n")
	for _, l := range list {
		changed := ""
		if !l.At.IsZero() {
			changed = l.At.UTC().Format(time.RFC3339) + " " + who(l.By, l.Why)
		}
		if l.Forced {
			changed += p.In(report.Red, " (forced)")
		}
		if l.Refused != "" {
			changed += p.In(report.Red, " (not followed: "+logtext.Printable(l.Refused)+")")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", logtext.Printable(l.Policy), limitOr(l.Program, "?"), limitOr(l.InForce, "?"), strings.TrimSpace(changed))
	}
}

func writeHistory(table io.Writer, list []limits.Logged) {
	for _, c := range list {
		to := limitOr(c.Limit, "the program's")
		if c.Forced {
			to += " (forced)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s to %s\t%s\n", c.At.UTC().Format(time.RFC3339), logtext.Printable(c.Policy), limitOr(c.Was, "?"), to, who(c.By, c.Why))
	}
}

func limitOr(limit, instead string) string { return cmp.Or(logtext.Printable(limit), instead) }

// who says who made a change, and why.
func who(by, why string) string {
	if why != "" {
		why = ": " + logtext.Printable(why)
	}
	return "by " + logtext.Printable(by) + why
}
