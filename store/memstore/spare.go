package memstore

import (
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A name names a bucket with a spare or a block. Few buckets have one, so spares and blocks are not in entries. They are
// dropped together with the entry.
type name struct{ policy, key string }

func (s *shard) spare(policy, key string) bucket.Spare { return s.spares[name{policy, key}] }

func (s *shard) setSpare(policy, key string, spare bucket.Spare) {
	if s.spares == nil {
		s.spares = make(map[name]bucket.Spare)
	}
	s.spares[name{strings.Clone(policy), strings.Clone(key)}] = spare
}

func (s *shard) dropSpare(e *entry) {
	if len(s.spares) > 0 {
		delete(s.spares, e.name())
	}
}
