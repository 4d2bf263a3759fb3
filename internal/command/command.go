// Package command is the command ratelimit, without the process around it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Exit statuses.
const (
	done        = 0
	found       = 1 // findings, faults, a refusal
	usage       = 2 // the command line is wrong
	failed      = 3 // no answer, or a file that cannot be read
	interrupted = 130
)

// A command is a subcommand.
type command struct {
	name     string // "peek", or "limits set"
	args     string // what follows the flags, such as "KEY"
	short    string // what it does, in a line
	long     string // what else there is to know
	statuses string // what the exit statuses mean, where they are not 0, 2 and 3
	examples []string

	// prepare defines the flags, and returns what runs when they are parsed.
	prepare func(f *flags) func(ctx context.Context, e *env) error
}

// An env is what a run of a command reads and writes.
type env struct {
	getenv   func(string) string
	stdin    io.Reader
	out, err io.Writer
	terminal bool     // out is one
	args     []string // those that are no flags
	paint    paint
}

// commands are in the order of the list.
var commands = []*command{
	diagnoseCommand,
	peekCommand, resetCommand, blockCommand, unblockCommand,
	topCommand,
	limitsGetCommand, limitsSetCommand, limitsEndCommand,
	policiesCommand, explainCommand, simulateCommand,
}

// Run runs the command with args, which do not have its name, and returns the exit status. getenv is os.Getenv.
func Run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	status := run(ctx, args, &env{getenv: getenv, stdin: stdin, out: out, terminal: isTerminal(stdout), err: stderr, paint: paintFor(stdout, getenv)})
	if out.err != nil {
		fmt.Fprintf(stderr, "ratelimit: the output could not be written: %s\n", plain(out.err))
		return failed
	}
	return status
}

func run(ctx context.Context, args []string, e *env) int {
	if len(args) == 0 {
		writeList(e.err)
		return usage
	}
	if args[0] == "help" || isHelp(args[0]) {
		return help(args[1:], e)
	}
	c, rest := find(args)
	if c == nil {
		return unknown(args, e)
	}
	f := newFlags(e.getenv)
	do := c.prepare(f)
	var err error
	switch e.args, err = f.parse(rest); {
	case errors.Is(err, errHelp):
		c.writeHelp(e.out, f)
		return done
	case err == nil:
		err = do(ctx, e)
	}
	return c.report(ctx, err, f, e)
}

// report writes an error, and returns the exit status.
func (c *command) report(ctx context.Context, err error, f *flags, e *env) int {
	var wrong *usageError
	var status *statusError
	switch {
	case err == nil:
		return done
	case errors.As(err, &wrong):
		fmt.Fprintf(e.err, "ratelimit %s: %s\n\n", c.name, plain(err))
		c.writeUsage(e.err, f)
		return usage
	case errors.As(err, &status) && status.err == nil:
		return status.status
	case ctx.Err() != nil:
		fmt.Fprintf(e.err, "ratelimit %s: interrupted\n", c.name)
		return interrupted
	}
	for line := range strings.Lines(plain(err)) {
		fmt.Fprintf(e.err, "ratelimit %s: %s\n", c.name, strings.TrimSuffix(line, "\n"))
	}
	if status != nil {
		return status.status
	}
	return failed
}

// find returns the command that args begin with, and the rest of args.
func find(args []string) (*command, []string) {
	for _, c := range commands {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return c, args[len(words):]
		}
	}
	return nil, nil
}

// group returns the commands whose first word is name, if they have further ones.
func group(name string) (members []*command) {
	for _, c := range commands {
		if strings.HasPrefix(c.name, name+" ") {
			members = append(members, c)
		}
	}
	return members
}

// unknown says what could follow instead of args.
func unknown(args []string, e *env) int {
	members := group(args[0])
	switch {
	case len(members) == 0:
		fmt.Fprintf(e.err, "ratelimit: %s: no such command\n\n", shown(args[0]))
		writeList(e.err)
		return usage
	case len(args) > 1 && isHelp(args[1]):
		writeCommands(e.out, members)
		return done
	case len(args) == 1:
		fmt.Fprintf(e.err, "ratelimit %s: needs a further word\n\n", args[0])
	default:
		fmt.Fprintf(e.err, "ratelimit %s: %s: no such command\n\n", args[0], shown(args[1]))
	}
	writeCommands(e.err, members)
	return usage
}

// help answers "help" and what follows.
func help(args []string, e *env) int {
	if len(args) == 0 {
		writeList(e.out)
		return done
	}
	if c, _ := find(args); c != nil {
		f := newFlags(e.getenv)
		c.prepare(f)
		c.writeHelp(e.out, f)
		return done
	}
	if members := group(args[0]); len(members) > 0 && len(args) == 1 {
		writeCommands(e.out, members)
		return done
	}
	return unknown(args, e)
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func writeList(w io.Writer) {
	fmt.Fprint(w, "Looks at rate limits in Redis, changes them, explains a request, and simulates limits on access logs.\n\n")
	writeCommands(w, commands)
	fmt.Fprint(w, "\nExamples:\n")
	for _, c := range commands {
		if len(c.examples) > 0 {
			fmt.Fprintf(w, "  %s\n", c.examples[0])
		}
	}
	fmt.Fprint(w, "\nratelimit help COMMAND shows its flags and more examples.\n")
}

func writeCommands(w io.Writer, list []*command) {
	fmt.Fprint(w, "Commands:\n")
	width := 0
	for _, c := range list {
		width = max(width, len(c.name)+1+len(c.args))
	}
	for _, c := range list {
		fmt.Fprintf(w, "  %-*s  %s\n", width, strings.TrimSpace(c.name+" "+c.args), c.short)
	}
}

// writeUsage writes what an error shows.
func (c *command) writeUsage(w io.Writer, f *flags) {
	fmt.Fprintf(w, "Usage: %s\n", strings.TrimSpace("ratelimit "+c.name+" [flags] "+c.args))
	f.write(w)
}

func (c *command) writeHelp(w io.Writer, f *flags) {
	fmt.Fprintf(w, "%s\n\n", c.short)
	for _, line := range wrap(c.long, 96) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	c.writeUsage(w, f)
	fmt.Fprintln(w)
	for _, line := range wrap("Exit status: "+c.statuses, 96) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprint(w, "\nExamples:\n")
	for _, example := range c.examples {
		fmt.Fprintf(w, "  %s\n", example)
	}
}
