package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// Encode returns s as JSON of at most store.MaxValueText bytes, for people to read, too. LeftOut counts what does not fit. The
// order is: histories of policies, those of the policies with the fewest requests first; the last keys and blocks; the last
// policies.
func (s *Snapshot) Encode() (string, error) {
	cut := *s
	cut.Format = format
	cut.Policies, cut.Keys, cut.Blocks = slices.Clone(s.Policies), slices.Clone(s.Keys), slices.Clone(s.Blocks)
	cut.Traffic, cut.Operations, cut.Engine = nonzero(s.Traffic), nonzero(s.Operations), nonzero(s.Engine)
	cut.History = cut.History.trimmed()
	for i := range cut.Policies {
		cut.Policies[i].History = cut.Policies[i].History.trimmed()
	}
	for {
		text, err := json.Marshal(&cut)
		switch {
		case err != nil:
			return "", fmt.Errorf("fleet: a snapshot of %s cannot be encoded: %w", s.Replica, err)
		case len(text) <= store.MaxValueText:
			return string(text), nil
		case !cut.shorten(len(text) - store.MaxValueText):
			return "", errors.New("fleet: a snapshot is too long without its policies, keys and blocks")
		}
	}
}

func nonzero(counts map[string]int64) map[string]int64 {
	counts = maps.Clone(counts)
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return counts
}

// shorten leaves out about as many bytes as excess. It returns false if there is nothing left.
func (s *Snapshot) shorten(excess int) (left bool) {
	spare := func(v any) {
		excess -= size(v)
		left = true
	}
	quiet := make([]*Policy, len(s.Policies))
	for i := range s.Policies {
		quiet[i] = &s.Policies[i]
	}
	slices.SortStableFunc(quiet, func(a, b *Policy) int {
		return cmp.Or(cmp.Compare(a.Last.Requests(), b.Last.Requests()), cmp.Compare(a.Total.Requests(), b.Total.Requests()))
	})
	for _, kept := range []bool{true, false} {
		for _, p := range quiet {
			rest := Histories{}
			if kept {
				rest.TenMinutes = p.History.TenMinutes
			}
			if excess > 0 && p.History != rest {
				spare(p.History)
				excess += size(rest)
				p.History = rest
				s.LeftOut.Histories++
			}
		}
	}
	for _, kept := range []struct{ keys, blocks int }{{10, 20}, {0, 0}} {
		for ; excess > 0 && len(s.Keys) > kept.keys; s.LeftOut.Keys++ {
			spare(s.Keys[len(s.Keys)-1])
			s.Keys = s.Keys[:len(s.Keys)-1]
		}
		for ; excess > 0 && len(s.Blocks) > kept.blocks; s.LeftOut.Blocks++ {
			spare(s.Blocks[len(s.Blocks)-1])
			s.Blocks = s.Blocks[:len(s.Blocks)-1]
		}
	}
	for ; excess > 0 && len(s.Policies) > 0; s.LeftOut.Policies++ {
		spare(s.Policies[len(s.Policies)-1])
		s.Policies = s.Policies[:len(s.Policies)-1]
	}
	return left
}

// size returns the bytes of a part of a snapshot.
func size(v any) int {
	text, _ := json.Marshal(v) // as Encode did before
	return len(text) + len(",")
}

// Decode reads a snapshot that anybody may have written. It returns an error if Encode could not have returned the text. Texts
// for people are safe to show afterwards. Keys hold any bytes. A snapshot of a newer format has its host and release only.
func Decode(text string) (*Snapshot, error) {
	if len(text) > store.MaxValueText {
		return nil, fmt.Errorf("fleet: a snapshot of %d bytes: must have at most %d", len(text), store.MaxValueText)
	}
	s := new(Snapshot)
	err := json.Unmarshal([]byte(text), s)
	if err != nil || s.Format > format {
		var newer struct {
			Format        int
			Host, Release string
			At            time.Time
		}
		if json.Unmarshal([]byte(text), &newer) == nil && newer.Format > format {
			s, err = &Snapshot{Format: newer.Format, Host: newer.Host, Release: newer.Release, At: newer.At, Newer: true}, nil
		}
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: no snapshot: %w", err)
	}
	return s, nil
}
