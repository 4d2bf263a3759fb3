package teststore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Fault is what a Faulty Store does instead of answering.
type Fault func(ctx context.Context, take func() error) error

var ErrBroken = errors.New("broken")

func Broken(ctx context.Context, _ func() error) error { return cmp.Or(ctx.Err(), ErrBroken) }

func Hung(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// Nearby answers after the time that a server in the same rack takes.
func Nearby(_ context.Context, take func() error) error {
	time.Sleep(100 * time.Microsecond)
	return take()
}

// LostReply carries out the call and loses the reply.
func LostReply(_ context.Context, take func() error) error {
	_ = take()
	return ErrBroken
}

// Refused fails as a dial does.
func Refused(context.Context, func() error) error {
	time.Sleep(100 * time.Microsecond)
	return fmt.Errorf("connection refused: %w", store.ErrNotCharged)
}

// Faulty is a Store with a Fault, if it is given one. A release of a slot waits for no server, so it has none.
type Faulty struct {
	store.Store
	fault atomic.Pointer[Fault]
	Calls atomic.Int64
}

func (s *Faulty) Take(ctx context.Context, charges []store.Charge, states []store.State) (ok bool, err error) {
	if len(charges) > 0 && charges[0].Limit.IsConcurrency() && charges[0].Cost < 0 {
		return s.Store.Take(ctx, charges, states)
	}
	s.Calls.Add(1)
	take := func() error {
		ok, err = s.Store.Take(ctx, charges, states)
		return err
	}
	f := s.fault.Load()
	if f == nil {
		err = take()
		return ok, err
	}
	if err := (*f)(ctx, take); err != nil {
		return false, err
	}
	return ok, nil
}

func (s *Faulty) Inspect(ctx context.Context, policy, key string) (b store.Bucket, err error) {
	s.Calls.Add(1)
	inspect := func() error {
		b, err = store.Inspect(ctx, s.Store, policy, key)
		return err
	}
	if f := s.fault.Load(); f != nil {
		return b, (*f)(ctx, inspect)
	}
	err = inspect()
	return b, err
}

func (s *Faulty) Block(ctx context.Context, policy, key string, b store.Block) (degraded bool, err error) {
	s.Calls.Add(1)
	block := func() error {
		degraded, err = store.SetBlock(ctx, s.Store, policy, key, b)
		return err
	}
	if f := s.fault.Load(); f != nil {
		err = (*f)(ctx, block)
	} else {
		err = block()
	}
	return degraded, err
}

func (s *Faulty) Unwrap() store.Store { return s.Store }

func (s *Faulty) Have(f Fault) { s.fault.Store(&f) }
func (s *Faulty) Mend()        { s.fault.Store(nil) }
