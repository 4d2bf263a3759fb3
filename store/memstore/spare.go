package memstore

import (
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A name names a bucket with an aside or a block. Few buckets have one, so asides and blocks are not in entries. They are
// dropped together with the entry.
type name struct{ policy, key string }

// An aside is what a shard keeps of a bucket besides its entry.
type aside struct {
	spare bucket.Spare
	hold  int64 // see shard.hold
}

func (s *shard) spare(policy, key string) bucket.Spare { return s.asides[name{policy, key}].spare }

func (s *shard) setSpare(policy, key string, spare bucket.Spare) {
	n := name{strings.Clone(policy), strings.Clone(key)}
	s.setAside(n, aside{spare, s.asides[n].hold})
}

func (s *shard) setAside(n name, a aside) {
	switch {
	case a != aside{}:
		if s.asides == nil {
			s.asides = make(map[name]aside)
		}
		s.asides[n] = a
	case len(s.asides) > 0:
		delete(s.asides, n)
		if len(s.asides) == 0 {
			s.asides = nil // a map does not shrink
		}
	}
}

func (s *shard) dropAside(e *entry) {
	if len(s.asides) > 0 {
		s.setAside(e.name(), aside{})
	}
}
