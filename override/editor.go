package override

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/store"
)

// An Editor reads and changes the overrides without a Limiter, as the command does. In a program use [Watch].
type Editor struct {
	Values store.Values

	// Program has the limits that the program sets, by policy: the zero Limit for one whose LimitFunc chooses all limits.
	// If it is nil, Change.Was stands for the program's limit, or else the override that is in force. The replicas then
	// judge whether they follow.
	Program map[string]ratelimit.Limit

	// MaxFactor is as in [Config].
	MaxFactor int64
}

// read reads all overrides.
func (e *Editor) read(ctx context.Context) (*book, time.Time, error) {
	if e.Values == nil {
		return nil, time.Time{}, errors.New("override: Editor.Values: must not be nil, but a *redisstore.Store for example")
	}
	b := &book{maxFactor: cmp.Or(e.MaxFactor, defaultMaxFactor), values: make(map[string]*held)}
	if e.Program != nil {
		b.programs = make(programLimits)
		for name, limit := range e.Program {
			b.programs[name] = []ratelimit.Limit{limit}
		}
	}
	changes, err := e.Values.ReadValues(ctx, setName, store.Value{})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("override: %w", err)
	}
	for _, v := range changes.Values {
		b.values[v.Name] = b.judge(v, changes.Now)
	}
	return b, changes.Now, nil
}

// List returns the policies of Program and all overrides, by policy and key. An entry's InForce is what a replica enforces
// whose program has these limits.
func (e *Editor) List(ctx context.Context) ([]Entry, error) {
	b, _, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	return b.entries(all), nil
}

func all(string, string) bool { return true }

// History returns the last 50 changes, the newest first: the last one of each policy and key, for 30 days after its end.
func (e *Editor) History(ctx context.Context) ([]Logged, error) {
	b, _, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	return b.history(), nil
}

// Set makes a change. Its errors are those of [Overrides.Set].
func (e *Editor) Set(ctx context.Context, c Change) error { return e.change(ctx, c, (*book).set) }

// End ends an override. Its errors are those of [Overrides.Set].
func (e *Editor) End(ctx context.Context, c Change) error { return e.change(ctx, c, (*book).end) }

func (e *Editor) change(ctx context.Context, c Change, prepare func(*book, Change, time.Time) (store.Value, error)) error {
	b, now, err := e.read(ctx)
	if err != nil {
		return err
	}
	v, err := prepare(b, c, now)
	if err != nil {
		return err
	}
	return write(ctx, e.Values, v)
}

// write writes the value of a change. If another one was faster, it returns an ErrConflict.
func write(ctx context.Context, values store.Values, v store.Value) error {
	now, written, err := values.WriteValue(ctx, setName, v)
	switch {
	case err != nil:
		return fmt.Errorf("override: %w", err)
	case written:
		return nil
	}
	is := "that of the program"
	if r, err := parseRecord(now.Text); now.Version != 0 && err != nil {
		is = "not readable: " + err.Error()
	} else if r.Limit != "" {
		is = r.Limit + ", by " + r.By
	}
	return fmt.Errorf("override: %s: %w: it is %s", logtext.Show(v.Name, maxShown), ErrConflict, is)
}
