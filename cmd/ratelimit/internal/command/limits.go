package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-tokenbucket/ratelimit"
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
	name:  "limits get",
	args:  "[POLICY]",
	short: "Shows the limits that were changed, by whom, and the last changes.",
	long:  limitsWords + ` With -policies it also shows the limits that were not changed, and which changes the replicas refuse.`,
	examples: []string{
		"ratelimit limits get -redis redis://localhost:6379",
		"ratelimit limits get -policies limits.yaml api",
	},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		return func(ctx context.Context, e *env) error {
			policy := ""
			if len(e.args) > 0 {
				var err error
				if policy, err = e.one("POLICY", "api"); err != nil {
					return err
				}
			}
			return l.with(ctx, func(ctx context.Context, editor *limits.Editor) error {
				return getLimits(ctx, editor, policy, e)
			})
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
	examples: []string{
		`ratelimit limits set api 120/1m burst 20 -policies limits.yaml -why "sale until Sunday"`,
		"ratelimit limits set api 120/1m -was 60/1m -by alice",
	},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		c := limits.Change{}
		was := f.text("was", "`LIMIT` that is in force. If another one is, nothing changes")
		force := f.is("force", "allow a limit that is more than 10 times higher or lower than the program's")
		by, why := defineWho(f, "the change")
		return func(ctx context.Context, e *env) error {
			if len(e.args) < 2 {
				return wrongUsage("needs POLICY and LIMIT, such as api 120/1m burst 20")
			}
			c.Policy, c.Limit, c.Was, c.Why, c.Force = e.args[0], strings.Join(e.args[1:], " "), *was, *why, *force
			c.By = cmp.Or(*by, operator(e.getenv))
			for name, text := range map[string]string{"LIMIT": c.Limit, "-was": c.Was} {
				if _, err := ratelimit.ParseLimit(text); err != nil && (text != "" || name == "LIMIT") {
					return wrongUsage("%s: %s", name, strings.TrimPrefix(err.Error(), "ratelimit: "))
				}
			}
			return l.with(ctx, func(ctx context.Context, editor *limits.Editor) error {
				if err := editor.Set(ctx, c); err != nil {
					return err
				}
				return getLimits(ctx, editor, c.Policy, e)
			})
		}
	},
}

var limitsEndCommand = &command{
	name:  "limits end",
	args:  "POLICY",
	short: "Ends a change: the limit of the program is in force again.",
	long:  limitsWords,
	examples: []string{
		"ratelimit limits end api -redis redis://localhost:6379 -why \"the sale is over\"",
	},
	prepare: func(f *flags) func(context.Context, *env) error {
		l := defineLimits(f)
		by, why := defineWho(f, "the change")
		return func(ctx context.Context, e *env) error {
			policy, err := e.one("POLICY", "api")
			if err != nil {
				return err
			}
			return l.with(ctx, func(ctx context.Context, editor *limits.Editor) error {
				if err := editor.End(ctx, limits.Change{Policy: policy, By: cmp.Or(*by, operator(e.getenv)), Why: *why}); err != nil {
					return err
				}
				return getLimits(ctx, editor, policy, e)
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
	redis           *redisFlags
	policies, names *string
}

func defineLimits(f *flags) *limitsFlags {
	return &limitsFlags{redis: defineRedis(f), policies: f.text("policies", "`FILE` with the policies of the program"), names: defineNames(f)}
}

// with calls do, and explains its error.
func (l *limitsFlags) with(ctx context.Context, do func(context.Context, *limits.Editor) error) error {
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
		return explainLimits(do(ctx, editor), c)
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
		list = only(list, func(entry limits.Entry) bool { return entry.Policy == policy })
		history = only(history, func(change limits.Logged) bool { return change.Policy == policy })
	}
	if len(list) == 0 {
		fmt.Fprint(e.out, "no changed limit is in force\n")
	} else {
		writeLimits(e.out, list, e.paint)
	}
	if len(history) > 0 {
		fmt.Fprint(e.out, "\nLast changes\n")
		writeHistory(e.out, history[:min(len(history), maxHistory)])
	}
	return nil
}

func only[T any](list []T, keep func(T) bool) (kept []T) {
	for _, v := range list {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// writeLimits writes texts that package limits has cut and escaped.
func writeLimits(w io.Writer, list []limits.Entry, p paint) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "policy\tprogram\tin force\tchanged\n")
	for _, l := range list {
		changed := ""
		if !l.At.IsZero() {
			changed = l.At.UTC().Format(time.RFC3339) + " by " + logtext.Printable(l.By)
			if l.Why != "" {
				changed += ": " + logtext.Printable(l.Why)
			}
		}
		if l.Forced {
			changed += p.in(red, " (forced)")
		}
		if l.Refused != "" {
			changed += p.in(red, " (not followed: "+logtext.Printable(l.Refused)+")")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", logtext.Printable(l.Policy), cmp.Or(logtext.Printable(l.Program), "?"), cmp.Or(logtext.Printable(l.InForce), "?"), strings.TrimSpace(changed))
	}
	_ = table.Flush()
}

func writeHistory(w io.Writer, list []limits.Logged) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, c := range list {
		to := "the program's"
		if c.Limit != "" {
			to = logtext.Printable(c.Limit)
		}
		if c.Forced {
			to += " (forced)"
		}
		by := "by " + logtext.Printable(c.By)
		if c.Why != "" {
			by += ": " + logtext.Printable(c.Why)
		}
		fmt.Fprintf(table, "%s\t%s\t%s to %s\t%s\n", c.At.UTC().Format(time.RFC3339), logtext.Printable(c.Policy), cmp.Or(logtext.Printable(c.Was), "?"), to, by)
	}
	_ = table.Flush()
}
