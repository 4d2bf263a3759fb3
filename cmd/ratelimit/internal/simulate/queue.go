package simulate

import (
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
	waiting []*walker // the one whose wait ends last comes first
	idle    []*walker
	walking *walker
}

// A walker is a coroutine that takes requests through the policies. It stops where they wait.
type walker struct {
	passage
	request *http.Request
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

// send sends a request on its way. It returns nil if the request has to wait.
func (e *engine) send(file string, entry *accesslog.Entry) *passage {
	if len(e.idle) == 0 {
		e.idle = append(e.idle, e.newWalker())
	}
	w := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	w.begin(file, entry)
	w.request = entry.Request
	return e.walk(w)
}

// walk lets w go on. It returns nil if the request has to wait.
func (e *engine) walk(w *walker) *passage {
	e.walking, e.current = w, &w.passage
	wait, _ := w.next()
	if wait == answered {
		e.idle = append(e.idle, w)
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
func (e *engine) advance(to int64, done func(*passage)) {
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
		if p := e.walk(w); p != nil {
			done(p)
		}
	}
	if to != math.MaxInt64 {
		e.line, e.now = to, to
	}
}

// close ends all coroutines.
func (e *engine) close() {
	for _, w := range slices.Concat(e.waiting, e.idle) {
		e.walking, e.current = w, &w.passage
		w.stop()
	}
}
