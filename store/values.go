package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Values is a [Store] that also keeps sets of small values, such as the limits that operators have changed. All replicas
// share them. A set begins with its first value. All stores and decorators of this module are Values. A decorator of a
// Store that is not one returns an error that wraps [errors.ErrUnsupported].
//
// Each write gives its value a version, which is higher than all versions that the set had before, also if the clock of
// the store is set back. So a replica asks again and again for the values that were written after the last one it has. Only
// these are sent.
//
// A value may have an end, by the clock of the store. From then on it is left out, and the next calls for its set remove it.
// There is no other way to remove a value. A replica that has an earlier version keeps that, unless it reads the new one
// before its end. So write an end that is far enough ahead.
type Values interface {
	// ReadValues returns the values of a set that were written after the value after. Only the Name and Version of after
	// count. The zero Value asks for all values. If the store does not have after any more, because its end has come or the set
	// was lost, ReadValues returns all values, and All is set. It misses a loss if after's name was written again since. So
	// a replica should ask for all values now and then. ReadValues returns by ctx's deadline. Its errors are those of Take.
	ReadValues(ctx context.Context, set string, after Value) (ValueChanges, error)

	// WriteValue writes v if the value of its name has the version v.Version now. A version of 0 means that there is none,
	// or that its end has come. [AnyVersion] writes v in any case. It returns the value that the set has afterwards, and
	// whether that is v. If written is false, now has the other version, or a Version of 0. WriteValue returns by ctx's
	// deadline. Its errors are those of Take. After an error v may have been written, but not twice.
	WriteValue(ctx context.Context, set string, v Value) (now Value, written bool, err error)
}

// A Value is a small value of a set.
type Value struct {
	Name    string    // from 1 to MaxValueName bytes, any bytes
	Text    string    // at most MaxValueText bytes, any bytes
	Version int64     // in microseconds of Unix time, unless the clock was set back; 0 if there is no value
	Until   time.Time // the end, rounded up to a microsecond; zero: there is none
}

// ValueChanges are what ReadValues returns.
type ValueChanges struct {
	Values []Value   // each name once, in the order of their versions; without those whose end has come
	Now    time.Time // the time of the store
	All    bool      // Values are all values of the set, and not only the changes
}

// AnyVersion is a [Value.Version] for WriteValue: the value is written whatever version its name has.
const AnyVersion = -1

// The bounds of a set's name, and of a [Value].
const (
	MaxValueName = 512
	MaxValueText = 8 << 10
)

// ReadValues reads values of s. If s is not a [Values], or decorates a Store that is not one, the error wraps
// [errors.ErrUnsupported].
func ReadValues(ctx context.Context, s Store, set string, after Value) (ValueChanges, error) {
	if values, ok := s.(Values); ok {
		return values.ReadValues(ctx, set, after)
	}
	return ValueChanges{}, noValues(s)
}

// WriteValue writes a value to s. If s is not a [Values], or decorates a Store that is not one, the error wraps
// [errors.ErrUnsupported].
func WriteValue(ctx context.Context, s Store, set string, v Value) (now Value, written bool, err error) {
	if values, ok := s.(Values); ok {
		return values.WriteValue(ctx, set, v)
	}
	return Value{}, false, noValues(s)
}

func noValues(s Store) error {
	return fmt.Errorf("store: %T is not a Values: %w", s, errors.ErrUnsupported)
}

// The first and the last end of a value. Doubles hold the microseconds between them exactly.
var (
	firstUntil = time.UnixMicro(1)
	lastUntil  = time.UnixMicro(1<<53 - 1)
)

// ValidateAfter returns an error that wraps [ErrInvalidCall] if a call of ReadValues is not valid. Every Values calls it
// first.
func ValidateAfter(set string, after Value) error {
	switch {
	case set == "" || len(set) > MaxValueName:
		return fmt.Errorf("%w: set of %d bytes: must have from 1 to %d bytes", ErrInvalidCall, len(set), MaxValueName)
	case len(after.Name) > MaxValueName:
		return fmt.Errorf("%w: Name of %d bytes: must have at most %d bytes", ErrInvalidCall, len(after.Name), MaxValueName)
	case after.Version < 0:
		return fmt.Errorf("%w: Version %d of the value after which to read: must be that of a value that was read, or 0", ErrInvalidCall, after.Version)
	}
	return nil
}

// ValidateValue returns an error that wraps [ErrInvalidCall] if a call of WriteValue is not valid. Every Values calls it
// first.
func ValidateValue(set string, v Value) error {
	switch {
	case set == "" || len(set) > MaxValueName:
		return fmt.Errorf("%w: set of %d bytes: must have from 1 to %d bytes", ErrInvalidCall, len(set), MaxValueName)
	case v.Name == "" || len(v.Name) > MaxValueName:
		return fmt.Errorf("%w: Name of %d bytes: must have from 1 to %d bytes", ErrInvalidCall, len(v.Name), MaxValueName)
	case len(v.Text) > MaxValueText:
		return fmt.Errorf("%w: Text of %d bytes: must have at most %d bytes", ErrInvalidCall, len(v.Text), MaxValueText)
	case v.Version < AnyVersion:
		return fmt.Errorf("%w: Version %d: must be that of a value that was read, 0 or AnyVersion", ErrInvalidCall, v.Version)
	case !v.Until.IsZero() && (v.Until.Before(firstUntil) || v.Until.After(lastUntil)):
		return fmt.Errorf("%w: Until %v: must be zero, or from %d to %d", ErrInvalidCall, v.Until, firstUntil.Year(), lastUntil.UTC().Year())
	}
	return nil
}
