package memstore

import (
	"strings"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
)

// Few buckets have a spare, so that entries have no room for it: those whose owners had a stand-in. It goes with the
// entry.
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
