package command

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
	"github.com/go-tokenbucket/ratelimit/store"
)

// keyWords say what KEY is.
const keyWords = `KEY is the key as the limiter makes it, such as ip:192.0.2.1 or member:5: see the log of denials, the
admin page, or ratelimit top. -prefix and -secret-file must be those of the program, or it is another
bucket. `

var peekCommand = bucketCommand("peek", "Shows the bucket of a key, and changes nothing.", "The limit is that of the last charge, such as a member's tier.",
	"ratelimit peek -redis redis://localhost:6379 -policy api ip:192.0.2.1",
	func(f *flags) change { return change{asJSON: f.is("json", "write JSON")} })

var resetCommand = bucketCommand("reset", "Makes the bucket of a key full again, and ends its block or lock.", "Slots that are held stay held.",
	"ratelimit reset -redis redis://localhost:6379 -policy login ip:192.0.2.1",
	func(*flags) change { return change{done: "reset", do: (*ratelimit.Limiter).Reset} })

var blockCommand = bucketCommand("block", "Denies all requests of a key for some time, on all replicas.", "A further block replaces this one.",
	"ratelimit block -redis redis://localhost:6379 -policy api -for 1h -why 'scrapes prices' ip:192.0.2.1",
	func(f *flags) change {
		d := f.duration("for", 15*time.Minute, "`TIME` that the block lasts")
		by, why := defineWho(f, "the block")
		reason := func() string {
			text := cmp.Or(*by, operator(f.getenv))
			if *why != "" {
				text += ": " + *why
			}
			return text
		}
		return change{done: "blocked",
			check: func() error {
				switch reason := reason(); {
				case *d < time.Microsecond || *d > store.MaxBlock:
					return wrongUsage("-for: must be from 1µs to %v (35 years)", store.MaxBlock)
				case len(reason) > store.MaxReason || !utf8.ValidString(reason):
					return wrongUsage("-why: must be UTF-8, and at most %d bytes with -by", store.MaxReason)
				}
				return nil
			},
			do: func(l *ratelimit.Limiter, ctx context.Context, p ratelimit.Policy, key string) (ratelimit.Result, error) {
				return l.Block(ctx, p, key, *d, reason())
			},
		}
	})

var unblockCommand = bucketCommand("unblock", "Ends a block or lock of a key. Its bucket keeps its tokens.", "",
	"ratelimit unblock -redis redis://localhost:6379 -policy api ip:192.0.2.1",
	func(*flags) change { return change{done: "unblocked", do: (*ratelimit.Limiter).Unblock} })

// checkKnown returns an error if a change of a bucket would have no effect.
func (c *connection) checkKnown(ctx context.Context, policy, key string) error {
	k, err := c.published(ctx)
	if err != nil {
		return c.unanswered(err, false)
	}
	return cmp.Or(k.checkPolicy("-policy", policy), k.checkKey("KEY", key))
}

// A change is what a command does with a bucket before it shows it. A nil do only looks.
type change struct {
	done string
	do   func(l *ratelimit.Limiter, ctx context.Context, p ratelimit.Policy, key string) (ratelimit.Result, error)

	check  func() error // of the flags; may be nil
	asJSON *bool        // nil if it cannot be chosen
}

// bucketCommand returns a command on one bucket. define defines its flags, and returns what it does.
func bucketCommand(name, short, long, example string, define func(f *flags) change) *command {
	c := &command{name: name, args: "KEY", short: short, long: keyWords + long, examples: []string{example}}
	c.prepare = func(f *flags) func(context.Context, *env) error {
		r := defineRedis(f)
		policy := f.text("policy", "`NAME` of the policy (required)")
		made := define(f)
		force := new(bool)
		if made.do != nil {
			force = f.is("force", "allow "+forceWords)
		}
		return func(ctx context.Context, e *env) error {
			key, err := e.one("KEY", "ip:192.0.2.1")
			switch {
			case err != nil:
				return err
			case *policy == "":
				return wrongUsage("-policy: must be the name of a policy of the program, such as api")
			case !policyname.Valid(*policy):
				return wrongUsage("-policy: must be %s", policyname.Rule)
			case made.check != nil:
				if err := made.check(); err != nil {
					return err
				}
			}
			return r.with(ctx, func(ctx context.Context, c *connection) error {
				if made.do != nil && !*force {
					if err := c.checkKnown(ctx, *policy, key); err != nil {
						return err
					}
				}
				l, err := ratelimit.New(ratelimit.Config{Store: c.store, Timeout: *r.timeout, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					return err
				}
				return changeBucket(ctx, l, ratelimit.Policy{Name: *policy}, key, made, c, e)
			})
		}
	}
	return c
}

func changeBucket(ctx context.Context, l *ratelimit.Limiter, p ratelimit.Policy, key string, made change, c *connection, e *env) error {
	if made.do != nil {
		if _, err := made.do(l, ctx, p, key); err != nil {
			return c.unanswered(err, true)
		}
	}
	r, err := l.Peek(ctx, p, key)
	if err != nil {
		err = c.unanswered(err, false)
		if made.do != nil {
			err = fmt.Errorf("%s, but the bucket could not be shown: %w", made.done, err)
		}
		return err
	}
	if made.do != nil {
		of := " of policy " + p.Name
		fmt.Fprintf(e.out, "%s %s%s\n\n", made.done, e.fit(key, len(made.done+" "+of)), of)
	}
	b := newBucket(&r, time.Now())
	if made.asJSON != nil && *made.asJSON {
		return writeJSON(e.out, b)
	}
	b.write(e)
	if made.do == nil && !r.Used && !r.Blocked {
		fmt.Fprint(e.err, "\nRedis keeps nothing for this key: it was not used, has refilled since, or has no slot\nthat is held. If it should be in use, check KEY, -policy, -prefix and -secret-file.\n")
	}
	return nil
}
