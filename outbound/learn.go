package outbound

import (
	"cmp"
	"context"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

// A Report is what an answer says about the quota, as of the time when it came.
type Report struct {
	// Known says that Remaining and Reset are known: how many tokens are left after the call, and when the window
	// ends in which they may be used. Without a window, Reset is 0.
	Known     bool
	Remaining int64
	Reset     time.Duration

	// Refused says that the call was refused because of a limit. RetryAfter is then how long not to call. If it is 0,
	// that is until Reset if nothing is Remaining. Otherwise it is 1 s, doubled for each further refusal up to 1 min.
	Refused    bool
	RetryAfter time.Duration
}

// Report corrects the bucket of all replicas by what the answer to the call of t says. It may call the Store, and takes
// at most a few times [ratelimit.Config.Timeout].
func (q *Quota) Report(ctx context.Context, t Turn, r Report) {
	if t.key == "" {
		return
	}
	ctx = context.WithoutCancel(ctx)
	now := time.Now()
	q.mu.Lock()
	stop, excess := q.view(t.key).learn(&t, r, now, q.maxStop)
	q.mu.Unlock()
	switch {
	case stop > 0:
		q.stopAll(ctx, &t, now.Add(stop), empties(&r))
	case excess >= 1:
		q.correct(ctx, &t, excess)
	}
}

// A view is what a process knows of a key.
type view struct {
	line      *line
	stop      time.Time     // no call before it
	backoff   time.Duration // of the last refusal that did not say when
	corrected time.Time     // calls that were charged before do not count
	window    window
}

// learn returns how long to stop for r, or how many tokens the bucket has too many.
//
// The calls after t get at most what the bucket held when t was sent, and what it gains until the window ends. Neither
// may exceed what the API has left. The excess is taken from the bucket:
//
//	at once            t.left               ≤ remaining − guard
//	until the window   t.left + rate·window ≤ remaining − guard
//
// The second bound takes away the burst, so it applies only near the end: if no more is left than what the bucket gains
// until the next answers. Both compare one call with its own answer. So calls under way do not matter, except for
// those that overtake each other: guard is for these.
func (v *view) learn(t *Turn, r Report, now time.Time, maxStop time.Duration) (stop time.Duration, excess float64) {
	r.Remaining = max(0, r.Remaining)
	r.Reset = max(-maxReset, min(r.Reset, maxReset))
	if r.Known && !v.window.see(t, r, now) {
		r.Known = false
	}
	if r.Refused {
		return v.refused(t, r, now, maxStop), 0
	}
	if !t.sent.Before(v.stop) {
		v.backoff = 0
	}
	if !r.Known || !t.known || t.charged.Before(v.corrected) {
		return 0, 0
	}
	rate, latency, age := rate(t.policy.Limit), now.Sub(t.sent).Seconds(), now.Sub(t.charged).Seconds()
	guard := 0.5 + rate*latency/2
	window := max(0, min(v.window.left(t.sent), maxStop).Seconds())
	near := rate * min(window, 0.1+2*age)
	most := float64(r.Remaining) - guard
	if most <= near {
		most -= rate * window
	}
	if excess = t.left - most; excess < max(1, guard/2) {
		return 0, 0
	}
	v.corrected = now
	return 0, excess
}

// refused returns how long to stop for r, which refuses t, and stops this process.
func (v *view) refused(t *Turn, r Report, now time.Time, maxStop time.Duration) time.Duration {
	stop := r.RetryAfter
	if stop <= 0 && r.Known && r.Remaining == 0 {
		stop = max(r.Reset, v.window.left(now))
	}
	if stop <= 0 && t.sent.Before(v.stop) {
		return 0 // t was under way when the last stop began
	}
	if stop <= 0 {
		v.backoff = min(max(time.Second, 2*v.backoff), time.Minute)
		stop = v.backoff
	}
	stop = min(stop, maxStop)
	if until := now.Add(stop); until.After(v.stop) {
		v.stop = until
		if empties(&r) {
			v.line.empty.Store(int64(until.Sub(v.line.made)))
		}
	}
	return stop
}

// empties reports whether a bucket is empty after the stop of r, which is a refusal: a burst would be refused again.
func empties(r *Report) bool { return !r.Known || r.Remaining <= 0 }

// A window is what answers say of the time until Reset. It may be the rest of a fixed window, or the time until a bucket
// is full, which grows with each call.
type window struct {
	end   time.Time // when it ends, as answers say; the earliest of those within a second
	since time.Time // when the first answer said so
	from  int64     // what was left then
	fixed bool

	// A fixed window ends later than answers say, by less than late: they count in whole seconds, and clocks differ.
	// It is unknown until a window was seen to end. Then late is used only if the window goes on past its end.
	late time.Duration
	seen bool // late is known
	past bool // the window went on past its end
}

const (
	maxReset = 366 * 24 * time.Hour
	maxLate  = time.Second

	// A bucket's end would have moved by this if the window were that of a bucket.
	certain = 3 * time.Second
)

// see takes note of what r says of the window. It returns false if r is older than what is known.
func (w *window) see(t *Turn, r Report, now time.Time) bool {
	end := now.Add(r.Reset)
	moved := end.Sub(w.end)
	switch {
	case moved.Abs() <= time.Second:
		used := float64(w.from-r.Remaining) / rate(t.policy.Limit)
		if now.Sub(w.since).Seconds()+used > certain.Seconds() {
			w.fixed = true
		}
		if moved < 0 {
			w.end = end
		}
		if over := t.sent.Sub(w.end); over > 0 {
			w.past = true
			w.seen = w.seen && over <= w.late
		}
		return true
	case t.sent.Before(w.since):
		return false
	case w.fixed && moved > 0 && now.Sub(w.end) > -maxLate:
		late := max(-maxLate, min(now.Sub(w.end), maxLate))
		if w.seen {
			late = min(late, w.late)
		}
		w.late, w.seen, w.past = late, late < maxLate, false
	default:
		w.fixed, w.seen, w.past = false, false, false
	}
	w.end, w.since, w.from = end, now, r.Remaining
	return true
}

// left returns the time from t to the end of the window. It is 0 for that of a bucket.
func (w *window) left(t time.Time) time.Duration {
	switch {
	case !w.fixed:
		return 0
	case w.seen:
		return w.end.Add(w.late).Sub(t)
	case w.past:
		return w.end.Add(maxLate).Sub(t)
	}
	return w.end.Sub(t)
}

// maxAge is how old a call may be whose answer corrects the bucket.
const maxAge = time.Minute

// correct takes excess tokens from the bucket of the call t, unless any replica has corrected it since t was charged: t
// does not know of that.
func (q *Quota) correct(ctx context.Context, t *Turn, excess float64) {
	last, err := q.lastCorrection(ctx, t.key)
	if err == nil && last.ago > time.Since(t.charged) {
		q.correctAfter(ctx, last, owed(t.policy, t.key, excess)) // the limiter logs an error
	}
}

// stopAll stops the calls of all replicas until a time, unless they are stopped already. With empty, so is the
// bucket when the stop ends. Of several replicas at the same time, one succeeds, and the others look again.
func (q *Quota) stopAll(ctx context.Context, t *Turn, until time.Time, empty bool) {
	for range 5 {
		last, err := q.lastCorrection(ctx, t.key)
		if err != nil {
			return
		}
		stop, err := q.limiter.Peek(ctx, q.stop, t.key)
		missing := stopBurst + time.Until(until) - stop.ResetAfter
		if err != nil || missing < time.Millisecond {
			return
		}
		charges := []ratelimit.Charge{owed(q.stop, t.key, float64(missing.Microseconds()))}
		if bucket, err := q.limiter.Peek(ctx, t.policy, t.key); empty && err == nil {
			limit := t.policy.Limit
			burst := float64(cmp.Or(limit.Burst, limit.Rate))
			if excess := burst + rate(limit)*(time.Until(until)-bucket.ResetAfter).Seconds() + 1; excess >= 1 {
				charges = append(charges, owed(t.policy, t.key, excess))
			}
		}
		again, err := q.correctAfter(ctx, last, charges...)
		if err != nil || again == 0 {
			return
		}
		time.Sleep(min(again, travel))
	}
}

// A correction is the last one that any replica made: how long ago it was, and when it was read.
type correction struct {
	key  string
	ago  time.Duration
	read time.Time
}

// lastCorrection reads it from its bucket, which has a token for each millisecond since then.
func (q *Quota) lastCorrection(ctx context.Context, key string) (correction, error) {
	read := time.Now()
	r, err := q.limiter.Peek(ctx, q.corrected, key)
	return correction{key, time.Duration(r.Remaining) * time.Millisecond, read}, err
}

// travel is how long a call takes to reach the Store at most, as a rule, also from a process that is short of CPU time.
const travel = 100 * time.Millisecond

// correctAfter makes charges if last is still the last correction. It returns 0, or how long it takes until another one
// is possible. It takes the tokens that its bucket had when last was read: of several at the same time, only one finds
// them. It also takes those that have come since, into debt if it was faster. If they remained, this correction would seem
// to be older than it is, and would be made again.
func (q *Quota) correctAfter(ctx context.Context, last correction, charges ...ratelimit.Charge) (again time.Duration, err error) {
	p := q.corrected
	p.MaxWait = time.Since(last.read) + travel
	cost := min((last.ago + p.MaxWait).Milliseconds(), p.Limit.Burst)
	d, err := q.limiter.TakeAll(ctx, append(charges, ratelimit.Charge{Policy: p, Key: last.key, Cost: cost})...)
	if slow := time.Since(last.read) - p.MaxWait; err == nil && d.Allowed && slow > 0 {
		q.limiter.TakeAll(ctx, owed(q.corrected, last.key, float64(slow.Milliseconds())+1))
	}
	return d.RetryAfter(), err
}

func owed(p ratelimit.Policy, key string, tokens float64) ratelimit.Charge {
	return ratelimit.Charge{Policy: p, Key: key, Cost: int64(min(tokens, 1<<50)), Owed: true}
}
