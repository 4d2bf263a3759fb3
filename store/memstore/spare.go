package memstore

import (
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// A spareName names a bucket with a spare. Few buckets have one, those that had a stand-in, so spares are not in
// entries. A spare is dropped together with the entry.
type spareName struct{ policy, key string }

func (s *shard) spare(policy, key string) bucket.Spare { return s.spares[spareName{policy, key}] }

func (s *shard) setSpare(policy, key string, spare bucket.Spare) {
	if s.spares == nil {
		s.spares = make(map[spareName]bucket.Spare)
	}
	s.spares[spareName{strings.Clone(policy), strings.Clone(key)}] = spare
}

func (s *shard) dropSpare(e *entry) {
	if len(s.spares) > 0 {
		delete(s.spares, spareName{e.class.policy, e.key})
	}
}
