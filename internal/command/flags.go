package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

var errHelp = flag.ErrHelp

// flags are those of a command.
type flags struct {
	set    *flag.FlagSet
	getenv func(string) string
	fault  error // of the first value that is wrong
}

func newFlags(getenv func(string) string) *flags {
	f := &flags{set: flag.NewFlagSet("", flag.ContinueOnError), getenv: getenv}
	f.set.SetOutput(io.Discard)
	f.set.Usage = func() {}
	return f
}

// parse returns the arguments that are no flags. Flags may follow them, because people write the key first.
func (f *flags) parse(args []string) (rest []string, err error) {
	for {
		if err := f.set.Parse(args); err != nil {
			return nil, f.explain(err)
		}
		left := f.set.Args()
		ended := len(left) < len(args) && args[len(args)-len(left)-1] == "--"
		if ended || len(left) == 0 {
			rest = append(rest, left...)
			break
		}
		rest, args = append(rest, left[0]), left[1:]
	}
	for _, arg := range rest {
		if isRedisURL(arg) {
			return nil, wrongUsage("an argument is the URL of a Redis: write it after -redis, or set %s", redisVariable)
		}
	}
	return rest, nil
}

// explain turns an error of package flag into one that quotes no value. A value may be a password at a wrong place.
func (f *flags) explain(err error) error {
	text := err.Error()
	name, isUnknown := strings.CutPrefix(text, "flag provided but not defined: ")
	missing, isMissing := strings.CutPrefix(text, "flag needs an argument: ")
	switch {
	case errors.Is(err, flag.ErrHelp):
		return errHelp
	case f.fault != nil:
		return f.fault
	case isUnknown:
		return wrongUsage("%s: no such flag", shown(name))
	case isMissing:
		return wrongUsage("%s: needs a value", shown(missing))
	default:
		return wrongUsage("a flag is malformed: write -name value, or -name=value")
	}
}

// text defines a flag with a text. The usage has the name of the value in backquotes.
func (f *flags) text(name, usage string) *string {
	value := new(string)
	f.set.Var(&textValue{value, func(text string) error {
		if isRedisURL(text) && name != "redis" {
			return f.wrong(name, "is the URL of a Redis: write it after -redis, or set %s", redisVariable)
		}
		*value = text
		return nil
	}}, name, usage)
	return value
}

// texts defines a flag that can be repeated.
func (f *flags) texts(name, usage string) *[]string {
	values := new([]string)
	f.set.Func(name, usage, func(text string) error {
		*values = append(*values, text)
		return nil
	})
	return values
}

// is defines a flag without a value.
func (f *flags) is(name, usage string) *bool {
	value := new(bool)
	f.set.BoolFunc(name, usage, func(text string) error {
		switch text {
		case "true", "":
			*value = true
		case "false":
			*value = false
		default:
			return f.wrong(name, "takes no value")
		}
		return nil
	})
	return value
}

// duration defines a flag with a duration above 0.
func (f *flags) duration(name string, value time.Duration, usage string) *time.Duration {
	f.set.Func(name, fmt.Sprintf("%s (default %s)", usage, shortly(value)), func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return f.wrong(name, "must be a duration above 0, such as 90s, 15m or 24h")
		}
		value = d
		return nil
	})
	return &value
}

// number defines a flag with a whole number from 1.
func (f *flags) number(name string, value int, usage string) *int {
	f.set.Func(name, fmt.Sprintf("%s (default %s)", usage, thousands(value)), func(text string) error {
		n := 0
		if _, err := fmt.Sscanf(strings.NewReplacer(",", "", "_", "").Replace(text)+"\n", "%d\n", &n); err != nil || n <= 0 {
			return f.wrong(name, "must be a whole number from 1 to %s, such as %s", thousands(math.MaxInt), thousands(value))
		}
		value = n
		return nil
	})
	return &value
}

// share defines a flag with a percentage. The value is a part of 1.
func (f *flags) share(name, example, usage string, valid func(share float64) bool) *float64 {
	value := new(float64)
	f.set.Func(name, usage, func(text string) error {
		var percent float64
		number, ok := strings.CutSuffix(text, "%")
		if !ok {
			return f.wrong(name, "must be a percentage, such as %s", example)
		}
		if _, err := fmt.Sscanf(number+"\n", "%g\n", &percent); err != nil {
			return f.wrong(name, "must be a percentage, such as %s", example)
		}
		// percent/100 is not always the nearest number: 0.7/100 is less than 7 of 1,000 requests.
		share, err := strconv.ParseFloat(strconv.FormatFloat(percent, 'f', -1, 64)+"e-2", 64)
		if err != nil || !valid(share) {
			return f.wrong(name, "must be a percentage, such as %s", example)
		}
		*value = share
		return nil
	})
	return value
}

// wrong returns an error of the value of a flag, which it does not quote.
func (f *flags) wrong(name, format string, args ...any) error {
	f.fault = wrongUsage("-%s: %s", name, fmt.Sprintf(format, args...))
	return f.fault
}

// given reports whether the command line has a flag.
func (f *flags) given(name string) (given bool) {
	f.set.Visit(func(fl *flag.Flag) { given = given || fl.Name == name })
	return given
}

// rows returns the flags, each with what it does.
func (f *flags) rows() (rows [][2]string) {
	f.set.VisitAll(func(fl *flag.Flag) {
		value, text := flag.UnquoteUsage(fl)
		rows = append(rows, [2]string{strings.TrimSpace("-" + fl.Name + " " + value), text})
	})
	return rows
}

// write lists the flags.
func (f *flags) write(w io.Writer) {
	rows := f.rows()
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	if len(rows) > 0 {
		fmt.Fprint(w, "\nFlags:\n")
	}
	for _, row := range rows {
		name := row[0]
		for _, line := range wrap(row[1], 96-width) {
			fmt.Fprintf(w, "  %-*s  %s\n", width, name, line)
			name = ""
		}
	}
}

// one returns the only argument.
func (e *env) one(name, example string) (string, error) {
	switch {
	case len(e.args) == 0:
		return "", wrongUsage("%s is missing, such as %s", name, example)
	case len(e.args) > 1:
		return "", wrongUsage("%s: unexpected argument: there is one %s; quote it if it has spaces", shown(e.args[1]), name)
	case e.args[0] == "":
		return "", wrongUsage("%s must not be empty", name)
	}
	return e.args[0], nil
}

// none returns an error if there are arguments.
func (e *env) none() error {
	if len(e.args) > 0 {
		return wrongUsage("%s: unexpected argument", shown(e.args[0]))
	}
	return nil
}

func isRedisURL(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && slices.Contains([]string{"redis", "rediss", "unix"}, strings.ToLower(scheme))
}

// A textValue is a flag.Value.
type textValue struct {
	value *string
	set   func(string) error
}

func (v *textValue) String() string { return "" }

func (v *textValue) Set(text string) error { return v.set(text) }
