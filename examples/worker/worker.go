package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/go-tokenbucket/ratelimit"
)

const partnerKey = "partner:7"

// partner is the policy of calls of the partner's API. A job waits for at most half of the time for which the queue
// holds it, and runs for at most the other half. So no other worker gets it meanwhile.
func partner(limit ratelimit.Limit, hold time.Duration) ratelimit.Policy {
	return ratelimit.Policy{
		Name:       "partner-api",
		Limit:      limit,
		MaxWait:    hold / 2,
		FailClosed: true, // no calls while Redis is unavailable, instead of too many
	}
}

// A worker does the jobs of a queue.
type worker struct {
	limiter *ratelimit.Limiter
	partner ratelimit.Policy
	jobs    *queue
	log     *log.Logger
}

// work does jobs until stop ends.
func (w *worker) work(stop context.Context) {
	for stop.Err() == nil {
		switch err := w.doOne(stop); {
		case errors.Is(err, errEmpty):
			pause(stop, 100*time.Millisecond)
		case err != nil:
			w.log.Print(err)
			pause(stop, 300*time.Millisecond) // because Wait does not block while Redis is unavailable
		}
	}
}

func pause(stop context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-stop.Done():
	}
}

func (w *worker) doOne(stop context.Context) error {
	j, err := w.jobs.take()
	if err != nil {
		return err
	}
	_, err = w.limiter.Wait(stop, w.partner, partnerKey, j.Cost)
	var late *ratelimit.WaitError
	switch {
	case errors.As(err, &late) && late.RetryAfter == ratelimit.Never:
		w.log.Printf("reject %s: %v", j.ID, err) // it would come back again and again
		return w.jobs.done(j)
	case stop.Err() != nil && err != nil:
		return w.jobs.putBack(j) // otherwise another worker gets it only after the hold of the queue
	case err != nil:
		return errors.Join(err, w.jobs.putBack(j))
	}

	w.log.Printf("begin %s cost %d", j.ID, j.Cost)
	job, cancel := context.WithTimeout(context.WithoutCancel(stop), w.jobs.hold/2) // a stop does not interrupt the job
	defer cancel()
	switch err := call(job, j); {
	case errors.Is(err, errNotSent):
		// The partner has counted nothing, so the tokens go back. Other failures have used them.
		w.log.Printf("refund %s cost %d", j.ID, j.Cost)
		_, notReturned := w.limiter.Refund(job, w.partner, partnerKey, j.Cost)
		return errors.Join(fmt.Errorf("job %s: %w", j.ID, err), notReturned, w.jobs.putBack(j))
	case err != nil:
		return errors.Join(fmt.Errorf("job %s: %w", j.ID, err), w.jobs.putBack(j))
	}
	if err := w.jobs.done(j); err != nil {
		return fmt.Errorf("job %s was done and may be done again: %w", j.ID, err)
	}
	w.log.Printf("done %s", j.ID)
	return nil
}

// errNotSent is the error of a job that failed before its first call.
var errNotSent = errors.New("the partner cannot be reached")

// call stands for the calls of the partner's API that j makes. One job in twenty does not reach the partner.
func call(ctx context.Context, _ job) error {
	if rand.IntN(20) == 0 {
		return errNotSent
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
