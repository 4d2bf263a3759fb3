// Package dryrun follows a request through the limiter while it is explained. Functions that find keys note there what
// they looked at.
package dryrun

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/explain"
)

// A Run records how the keys of one explained request are found. The methods may be called at the same time, because
// functions of the program may ask others in goroutines. Then a step may stand below another one that did not ask it.
type Run struct {
	mu      sync.Mutex
	open    []*Step       // from the outermost to the innermost
	first   *Step         // the outermost one
	done    *explain.Step // the outermost one that was closed
	steps   int
	secrets []string
	over    atomic.Bool // the explanation is complete
}

// A Step is a function that was asked for a key and has not returned.
type Step struct {
	code  uintptr // see entryOf
	named bool
	explain.Step
	tried []*Step
}

type runKey struct{}

// active counts the runs that have begun and not ended. All other requests pay for a read of it, and no more.
var active atomic.Int64

// Of returns the run of the request with that context, nil if it is not explained. A function of the program may keep the
// context of an explained request: it has no run once that is explained.
func Of(ctx context.Context) *Run {
	if active.Load() == 0 {
		return nil
	}
	return of(ctx)
}

// OfRequest is Of for the context of r, which it reads only while a request is explained.
func OfRequest(r *http.Request) *Run {
	if active.Load() == 0 {
		return nil
	}
	return ofRequest(r)
}

//go:noinline
func ofRequest(r *http.Request) *Run { return of(r.Context()) }

// of is apart so that the others are inlined.
//
//go:noinline
func of(ctx context.Context) *Run {
	run, _ := ctx.Value(runKey{}).(*Run)
	if run == nil || run.over.Load() {
		return nil
	}
	return run
}

// Begin returns a context for r, which is explained, and its run. Call end when it has been explained.
func Begin(ctx context.Context, r *http.Request) (_ context.Context, run *Run, end func()) {
	run = new(Run)
	run.hideCredentials(r)
	active.Add(1)
	return context.WithValue(ctx, runKey{}, run), run, func() {
		run.over.Store(true)
		active.Add(-1)
	}
}

// Open notes that f, a function, is asked for the key. Its name is the one of the Go function, until it calls Name.
func (run *Run) Open(f any) *Step {
	step := &Step{code: entryOf(f)}
	step.By = runtime.FuncForPC(step.code).Name()
	run.mu.Lock()
	defer run.mu.Unlock()
	if n := len(run.open); n > 0 && run.steps < maxSteps {
		run.open[n-1].tried = append(run.open[n-1].tried, step)
	}
	run.steps++
	run.open = append(run.open, step)
	if run.first == nil {
		run.first = step
	}
	return step
}

// Close notes what the function of step returned.
func (run *Run) Close(step *Step, key string, err error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if i := slices.Index(run.open, step); i >= 0 {
		run.open = slices.Delete(run.open, i, i+1)
	}
	if err != nil {
		step.Err = run.textOf(err, maxText)
	} else {
		step.Key = show(key)
	}
	if step != run.first {
		return
	}
	run.first, run.open = nil, nil // what it started and did not wait for may go on, and does not count
	if run.done == nil {
		run.done = step.copy()
	}
}

// Forget forgets all steps, before a function is asked that is the outermost one.
func (run *Run) Forget() {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.first, run.open, run.done = nil, nil, nil
}

// ErrPanicked is the error of a function that has not returned.
var ErrPanicked = errors.New("it panicked: the server would abort the request")

// copy returns how step and those that it asked are explained. Nobody else has the result.
func (step *Step) copy() *explain.Step {
	out := step.Step
	out.Notes = append([]string(nil), step.Notes...)
	for _, tried := range step.tried {
		out.Tried = append(out.Tried, tried.copy())
	}
	return &out
}

// Name names the function that calls it, if that is the function that was opened last. Otherwise a function of the program
// has called it, which keeps its name: then it is a note.
func (run *Run) Name(by string) {
	code := callerOf()
	run.mu.Lock()
	defer run.mu.Unlock()
	if n := len(run.open); n > 0 && run.open[n-1].code == code && !run.open[n-1].named {
		run.open[n-1].By, run.open[n-1].named = by, true
	} else {
		run.note("it asks %s", by)
	}
}

// Note adds a note to the function that was opened last. Strings and errors among args are cut and escaped, and
// credentials are taken out of errors.
func (run *Run) Note(format string, args ...any) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.note(format, args...)
}

// Took returns the outermost step that was closed, and forgets it.
func (run *Run) Took() *explain.Step {
	run.mu.Lock()
	defer run.mu.Unlock()
	step := run.done
	run.done = nil
	return step
}
