package fleet

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/logtext"
	"github.com/go-tokenbucket/ratelimit/internal/policyname"
)

// The bounds of what Decode accepts. The text as a whole has at most store.MaxValueText bytes.
const (
	maxCount   = 1 << 50 // so that sums over all replicas and all results fit
	maxList    = 128     // entries
	maxText    = 1 << 10 // bytes of a text for people
	maxKeyName = 1 << 10 // bytes
	maxStep    = 3600    // seconds
	maxAway    = 50 * 365 * 24 * time.Hour
)

var (
	countName   = regexp.MustCompile(`^[a-z_]{1,32}$`)
	replicaName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,80}$`)
)

// check returns an error if s is not one that Encode could have returned, and makes its texts for people safe to show.
func (s *Snapshot) check() error {
	if s.Format < 1 || s.At.IsZero() {
		return errors.New("it must have a format and a time")
	}
	if err := s.checkValue(reflect.ValueOf(s).Elem()); err != nil {
		return err
	}
	met := make(map[string]bool)
	for _, p := range s.Policies {
		if !policyname.Valid(p.Name) || met[p.Name] {
			return fmt.Errorf("policy %q", p.Name)
		}
		met[p.Name] = true
	}
	for _, k := range s.Keys {
		if !policyname.Valid(k.Policy) || k.Name == "" && len(k.Sealed) == 0 || max(len(k.Requests), len(k.Denials)) > 0 && s.KeySteps.Seconds == 0 {
			return fmt.Errorf("a key of policy %q", k.Policy)
		}
	}
	for _, b := range s.Blocks {
		if !policyname.Valid(b.Policy) || b.Name == "" && len(b.Sealed) == 0 {
			return fmt.Errorf("a block of policy %q", b.Policy)
		}
	}
	return nil
}

// checkValue checks all numbers, texts, times and lists below v, so that no field can be forgotten.
func (s *Snapshot) checkValue(v reflect.Value) error {
	switch of := v.Addr().Interface().(type) {
	case *time.Time:
		if away := of.Sub(s.At); !of.IsZero() && away.Abs() > maxAway {
			return fmt.Errorf("a time in the year %d", of.Year())
		}
		return nil
	case *Text:
		if len(*of) > maxKeyName {
			return fmt.Errorf("a key of %d bytes", len(*of))
		}
		return nil
	case *[]byte:
		if len(*of) > maxKeyName {
			return fmt.Errorf("a sealed key of %d bytes", len(*of))
		}
		return nil
	case *[]int64: // as below, but these are most of a snapshot
		if len(*of) > HistorySteps {
			return fmt.Errorf("%d steps", len(*of))
		}
		for _, n := range *of {
			if n < 0 || n > maxCount {
				return fmt.Errorf("a count of %d", n)
			}
		}
		return nil
	case *map[string]int64:
		for name, n := range *of {
			if !countName.MatchString(name) || n < 0 || n > maxCount || len(*of) > maxList {
				return fmt.Errorf("a count of %d", n)
			}
		}
		return nil
	case **History:
		if *of == nil {
			return nil
		}
		if h := *of; h.Seconds == 0 || h.End.IsZero() {
			return errors.New("a history without steps")
		}
		v = v.Elem()
		defer (*of).align()
	case *Steps:
		if of.Seconds > maxStep || of.End.After(s.At.Add(time.Second)) {
			return fmt.Errorf("steps of %d s until %v", of.Seconds, of.End)
		}
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if n := v.Int(); n < 0 || n > maxCount {
			return fmt.Errorf("a count of %d", n)
		}
	case reflect.String:
		text := v.String()
		if len(text) > maxText {
			text = strings.ToValidUTF8(text[:maxText], "") + "…"
		}
		v.SetString(logtext.Printable(text)) // which a replica has done before
	case reflect.Slice:
		if v.Len() > maxList {
			return fmt.Errorf("a list of %d", v.Len())
		}
		for i := range v.Len() {
			if err := s.checkValue(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := s.checkValue(v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}
