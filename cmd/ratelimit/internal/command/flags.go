package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-tokenbucket/ratelimit/internal/numbers"
)

// flags are those of a command.
type flags struct {
	list   []cli.Flag
	getenv func(string) string
	fault  error // of the first value that is wrong
}

// A value is a cli.Value that is set by a function.
type value struct{ set func(string) error }

func (v *value) String() string        { return "" }
func (v *value) Get() any              { return nil }
func (v *value) Set(text string) error { return v.set(text) }

// add defines a flag. The usage has the name of the value in backquotes.
func (f *flags) add(name, usage string, set func(string) error) {
	f.list = append(f.list, &cli.GenericFlag{Name: name, Usage: usage, Value: &value{set}})
}

// checkArgs returns an error if an argument is a malformed flag, or may have a password. Package cli takes what is no
// name of a flag for an argument.
func (e *env) checkArgs() error {
	for _, arg := range e.args {
		if isRedisURL(arg) {
			return wrongUsage("an argument is the URL of a Redis: write it after -redis, or set %s", redisVariable)
		}
		if !e.ended && len(arg) > 1 && arg[0] == '-' {
			return malformed
		}
	}
	return nil
}

var malformed = wrongUsage("a flag is malformed: write -name value, or -name=value")

// explain turns an error of package cli into one that quotes no value. A value may be a password at a wrong place.
func (f *flags) explain(err error) error {
	text := err.Error()
	name, isUnknown := strings.CutPrefix(text, "flag provided but not defined: ")
	missing, isMissing := strings.CutPrefix(text, "flag needs an argument: ")
	switch {
	case f.fault != nil:
		return f.fault
	case isUnknown:
		return wrongUsage("%s: no such flag", shown(name))
	case isMissing:
		return wrongUsage("%s: needs a value", shown(missing))
	default:
		return malformed
	}
}

// text defines a flag with a text.
func (f *flags) text(name, usage string) *string {
	value := new(string)
	f.add(name, usage, func(text string) error {
		if isRedisURL(text) && name != "redis" {
			return f.wrong(name, "is the URL of a Redis: write it after -redis, or set %s", redisVariable)
		}
		*value = text
		return nil
	})
	return value
}

// is defines a flag without a value.
func (f *flags) is(name, usage string) *bool {
	value := new(bool)
	f.list = append(f.list, &cli.BoolFlag{Name: name, Usage: usage, Destination: value, HideDefault: true})
	return value
}

// duration defines a flag with a duration above 0.
func (f *flags) duration(name string, value time.Duration, usage string) *time.Duration {
	f.add(name, fmt.Sprintf("%s (default %s)", usage, numbers.Short(value)), func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return f.wrong(name, "must be a duration above 0, such as 90s, 15m or 24h")
		}
		value = d
		return nil
	})
	return &value
}

// number defines a flag with a whole number from 1 to most.
func (f *flags) number(name string, value, most int, usage string) *int {
	f.add(name, fmt.Sprintf("%s (default %s)", usage, numbers.Count(value)), func(text string) error {
		n, err := strconv.Atoi(strings.NewReplacer(",", "", "_", "").Replace(text))
		if err != nil || n <= 0 || n > most {
			return f.wrong(name, "must be a whole number from 1 to %s, such as %s", numbers.Count(most), numbers.Count(value))
		}
		value = n
		return nil
	})
	return &value
}

// share defines a flag with a percentage. The value is a part of 1.
func (f *flags) share(name, example, usage string, valid func(share float64) bool) *float64 {
	value := new(float64)
	f.add(name, usage, func(text string) error {
		number, ok := strings.CutSuffix(text, "%")
		share, err := strconv.ParseFloat(number+"e-2", 64) // 0.7/100 is less than 7 of 1,000 requests
		if !ok || err != nil || !valid(share) {
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
