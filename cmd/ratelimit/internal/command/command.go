// Package command is the command ratelimit, without the process around it.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/report"
)

// Exit statuses.
const (
	done        = 0
	found       = 1 // findings, faults, a refusal
	usage       = 2 // the command line is wrong
	failed      = 3 // no answer, or a file that cannot be read
	interrupted = 130
)

// statuses say what they mean.
const statuses = "Exit status: 0 done, 1 something was found or refused, 2 wrong usage, 3 no answer, or a file that cannot be read, 130 interrupted."

// A command is a subcommand.
type command struct {
	name     string // "peek", or "limits set"
	args     string // what follows the flags, such as "KEY"
	short    string // what it does, in a line
	long     string // what else there is to know
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
	columns  int      // of the terminal
	args     []string // those that are no flags
	ended    bool     // "--" ends the flags
	paint    report.Paint
	status   int
}

// commands are in the order of the list.
var commands = []*command{
	diagnoseCommand,
	peekCommand, resetCommand, blockCommand, unblockCommand,
	topCommand,
	limitsGetCommand, limitsSetCommand, limitsEndCommand,
	policiesCommand, schemaCommand, explainCommand, simulateCommand,
}

// Run runs the command with args, which do not have its name, and returns the exit status. getenv is os.Getenv.
func Run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	e := &env{getenv: getenv, stdin: stdin, out: out, terminal: isTerminal(stdout), columns: widthOf(stdout, getenv), err: stderr, paint: paintFor(stdout, getenv)}
	root := tree(e)
	e.ended = slices.Contains(args, "--")
	if asksForHelp(args) {
		args = helpFor(root, args)
	}
	if err := root.Run(ctx, append([]string{"ratelimit"}, args...)); err != nil {
		fmt.Fprintf(stderr, "ratelimit: %s\n", plain(err))
		e.status = usage
	}
	if out.err != nil {
		fmt.Fprintf(stderr, "ratelimit: the output could not be written: %s\n", plain(out.err))
		return failed
	}
	return e.status
}

// asksForHelp reports whether help is asked for, at any place before "--".
func asksForHelp(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return len(args) > 0 && args[0] == "help" || slices.ContainsFunc(args, func(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" })
}

// helpFor returns the arguments that show the help of the command that args begin with. Package cli takes what stands
// behind a command for the name of a topic.
func helpFor(root *cli.Command, args []string) (words []string) {
	if args[0] == "help" {
		args = args[1:]
	}
	c := root
	for _, word := range args {
		below := c.Command(word)
		if below == nil {
			if len(c.Commands) > 0 && !strings.HasPrefix(word, "-") {
				return append(words, word) // no such command
			}
			break
		}
		c, words = below, append(words, word)
	}
	return append(words, "-help")
}

// tree returns the command with its subcommands.
func tree(e *env) *cli.Command {
	root := e.group("ratelimit", "Looks at rate limits in Redis, changes them, explains a request, and simulates limits on access logs.")
	root.Description = "ratelimit help COMMAND shows the flags of a command, its exit statuses, and examples."
	root.Version = version()
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = func(c *cli.Command) { c.Hidden = false }
	root.Writer, root.ErrWriter = e.out, e.err
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // it would end the process
	for _, c := range commands {
		parent := root
		if group, _, isInGroup := strings.Cut(c.name, " "); isInGroup {
			if parent = root.Command(group); parent == nil {
				parent = e.group(group, "Shows and changes limits while the program runs.")
				root.Commands = append(root.Commands, parent)
			}
		}
		parent.Commands = append(parent.Commands, c.build(e))
	}
	root.Commands = append(root.Commands, &cli.Command{
		Name: "version", Usage: "Shows the version.", HideHelpCommand: true,
		Action: func(_ context.Context, c *cli.Command) error { cli.ShowVersion(c.Root()); return nil },
	})
	return root
}

// group returns a command that needs a further word.
func (e *env) group(name, short string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: short, HideHelpCommand: true,
		OnUsageError: func(_ context.Context, _ *cli.Command, err error, _ bool) error {
			return (&flags{}).explain(err)
		},
		Action: func(_ context.Context, c *cli.Command) error {
			text := "needs a further word"
			if c.Args().Present() {
				text = shown(c.Args().First()) + ": no such command"
			}
			fmt.Fprintf(e.err, "%s: %s\n\n", c.FullName(), text)
			c.Root().Writer = e.err
			e.status = usage
			return cli.ShowSubcommandHelp(c)
		},
	}
}

// version returns that of the module, as go install has noted it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

func (c *command) build(e *env) *cli.Command {
	f := &flags{getenv: e.getenv}
	do := c.prepare(f)
	return &cli.Command{
		Name:            c.name[strings.LastIndexByte(c.name, ' ')+1:],
		Usage:           c.short,
		UsageText:       strings.TrimSpace("ratelimit "+c.name+" [flags] "+c.args) + "\n\nExamples:\n  " + strings.Join(c.examples, "\n  "),
		Description:     strings.Join(report.Wrap(c.long, e.sentences()-3), "\n") + "\n\n" + strings.Join(report.Wrap(statuses, e.sentences()-3), "\n"),
		Flags:           f.list,
		HideHelpCommand: true,
		OnUsageError: func(ctx context.Context, _ *cli.Command, err error, _ bool) error {
			e.status = c.report(ctx, f.explain(err), e)
			return nil
		},
		Action: func(ctx context.Context, parsed *cli.Command) error {
			e.args = parsed.Args().Slice()
			err := e.checkArgs()
			if err == nil {
				err = do(ctx, e)
			}
			e.status = c.report(ctx, err, e)
			return nil
		},
	}
}

// report writes an error, and returns the exit status.
func (c *command) report(ctx context.Context, err error, e *env) int {
	var wrong *usageError
	var status *statusError
	switch {
	case err == nil:
		return done
	case errors.As(err, &wrong):
		fmt.Fprintf(e.err, "ratelimit %s: %s\nratelimit help %s shows how to use it.\n", c.name, plain(err), c.name)
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
