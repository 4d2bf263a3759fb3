package simulate

import (
	"context"
	"iter"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/cmd/ratelimit/internal/accesslog"
)

// A queue is the requests that wait for their tokens. Each goes on when the lines have come to the end of its wait. Only
// then are the policies behind that place charged. Requests that come meanwhile are decided by the buckets as they are.
// Config.MaxWaiting of the limiter bounds the queue.
type queue struct {
	patient bool // a policy lets requests wait
	virtual context.Context
	waiting []*walker // the one whose wait ends last comes first
	idle    []*walker
	walking *walker
	done    *walker // its passage is still looked at
	kept    int64   // bytes of those that wait
	ties    int64   // waits that ended at the time of a line
	hurried int64   // requests that did not wait, because kept would be above maxKept
}

const (
	// waiterMemory is what each request that waits may take: its stack, and the texts of a common line.
	waiterMemory = 48 << 10
	commonTexts  = 16 << 10

	// maxKept bounds the texts above commonTexts of all requests that wait.
	maxKept = 64 << 20
)

// A walker is a coroutine that takes requests through the policies. It stops where they wait.
type walker struct {
	passage
	request *http.Request
	size    int64                        // bytes above commonTexts that it holds at most
	next    func() (time.Duration, bool) // goes on to the next wait, or to the answer
	stop    func()
	sleep   func(time.Duration) bool // called by the coroutine
	until   int64                    // the end of the wait, by the clock of the lines
}

// answered stands for a wait when there is none.
const answered = time.Duration(-1)

func (e *engine) newWalker() *walker {
	w := new(walker)
	w.next, w.stop = iter.Pull(func(yield func(time.Duration) bool) {
		w.sleep = yield
		for {
			e.real.ServeHTTP(&w.answer, w.request)
			if !yield(answered) {
				return
			}
		}
	})
	return w
}

// wait is the sleep of the request that goes its way now.
func (e *engine) wait(d time.Duration) {
	w := e.walking
	if e.kept+w.size > maxKept {
		e.hurried++
		return
	}
	e.kept += w.size
	w.sleep(d)
	e.kept -= w.size
}

// send sends a request on its way. It returns nil if the request has to wait.
func (e *engine) send(file int, entry *accesslog.Entry) *passage {
	if len(e.idle) == 0 {
		e.idle = append(e.idle, e.newWalker())
	}
	w := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	w.begin(file, entry)
	w.request = entry.Request
	w.size = max(0, int64(entry.Size)*int64(1+2*len(e.setup.policies))-commonTexts) // each policy may make a key of it
	return e.walk(w)
}

// walk lets w go on. It returns nil if the request has to wait.
func (e *engine) walk(w *walker) *passage {
	if e.done != nil && e.done != w {
		e.done.forget()
	}
	e.walking, e.current, e.done = w, &w.passage, nil
	wait, _ := w.next()
	if wait == answered {
		w.request = nil
		e.idle, e.done = append(e.idle, w), w
		return &w.passage
	}
	w.until = e.now + (wait.Nanoseconds()+999)/1000
	at, _ := slices.BinarySearchFunc(e.waiting, w, func(a, b *walker) int {
		if a.until > b.until {
			return -1
		}
		return 1 // of two that end at once, the first goes on first
	})
	e.waiting = slices.Insert(e.waiting, at, w)
	return nil
}

// advance moves the clock to the time of a line. Requests that have waited until then go on before, and done gets those
// that are answered. A clock that goes back does not change how long requests wait.
func (e *engine) advance(to int64, done func(*passage) error) error {
	if to < e.line {
		for _, w := range e.waiting {
			w.until -= e.line - to
		}
	}
	for len(e.waiting) > 0 {
		last := len(e.waiting) - 1
		w := e.waiting[last]
		if w.until > to {
			break
		}
		e.waiting = e.waiting[:last]
		e.now = w.until
		if w.until == to {
			e.ties++
		}
		if p := e.walk(w); p != nil {
			if err := done(p); err != nil {
				return err
			}
		}
	}
	if to != math.MaxInt64 {
		e.line, e.now = to, to
	}
	return nil
}

// close ends all coroutines.
func (e *engine) close() {
	for _, w := range slices.Concat(e.waiting, e.idle) {
		e.walking, e.current = w, &w.passage
		w.stop()
	}
}
