// Package dryrun follows a request through the limiter while it is explained. Functions that find keys note there what
// they looked at.
package dryrun

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-tokenbucket/ratelimit/explain"
	"github.com/go-tokenbucket/ratelimit/internal/logtext"
)

// A Run records how the keys of one explained request are found. The methods may be called at the same time, because
// functions of the program may ask others in goroutines. Then a step may stand below another one that did not ask it.
type Run struct {
	mu      sync.Mutex
	open    []*Step       // from the outermost to the innermost
	first   *Step         // the outermost one
	done    *explain.Step // the outermost one that was closed
	secrets []string
	over    atomic.Bool // the explanation is complete
}

// A Step is a function that was asked for a key and has not returned.
type Step struct {
	explain.Step
	entry uintptr // of its code; 0: it has a name
}

type runKey struct{}

// active counts the runs that have begun and not ended. All other requests pay for a read of it, and no more.
var active atomic.Int64

// OfRequest returns the run of r, nil if it is not explained. A function of the program may keep the context of an
// explained request: it has no run once that is explained.
func OfRequest(r *http.Request) *Run {
	if active.Load() == 0 {
		return nil
	}
	return ofRequest(r)
}

// ofRequest is apart so that OfRequest is inlined.
//
//go:noinline
func ofRequest(r *http.Request) *Run {
	run, _ := r.Context().Value(runKey{}).(*Run)
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
	step := &Step{entry: reflect.ValueOf(f).Pointer()}
	step.By = runtime.FuncForPC(step.entry).Name()
	run.mu.Lock()
	defer run.mu.Unlock()
	if n := len(run.open); n > 0 && len(run.open[n-1].Tried) < maxTried {
		run.open[n-1].Tried = append(run.open[n-1].Tried, &step.Step)
	}
	run.open = append(run.open, step)
	if run.first == nil {
		run.first = step
	}
	return step
}

// Close notes what the function of step returned.
func (run *Run) Close(step *Step, key string, err error) {
	text := ""
	if err != nil {
		text = run.Text(err, maxText)
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	i := slices.Index(run.open, step)
	if i < 0 {
		return // what a function started and did not wait for does not count
	}
	run.open = slices.Delete(run.open, i, i+1)
	step.Key, step.Err = logtext.Show(key, maxText), text
	if step != run.first {
		return
	}
	run.first, run.open = nil, nil
	if run.done == nil {
		run.done = &step.Step
	}
}

// ErrPanicked is the error of a function that has not returned.
var ErrPanicked = errors.New("it panicked: the server would abort the request")

// Name names the function that calls it, if that is the function that was opened last. Otherwise a function of the program
// has called it, which keeps its name: then it is a note. Without a run it does nothing.
func (run *Run) Name(by string) {
	if run == nil {
		return
	}
	caller, _, _, _ := runtime.Caller(1)
	entry := runtime.FuncForPC(caller).Entry()
	run.mu.Lock()
	n := len(run.open)
	asked := n > 0 && run.open[n-1].entry == entry
	if asked {
		run.open[n-1].By, run.open[n-1].entry = by, 0
	}
	run.mu.Unlock()
	if !asked {
		run.Note("it asks %s", by)
	}
}

// Took returns the outermost step that was closed first, and forgets all steps.
func (run *Run) Took() *explain.Step {
	run.mu.Lock()
	defer run.mu.Unlock()
	step := run.done
	run.first, run.open, run.done = nil, nil, nil
	return step
}
