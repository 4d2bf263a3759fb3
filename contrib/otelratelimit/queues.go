package otelratelimit

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-tokenbucket/ratelimit"
)

// maxQueues bounds the policies that have their own times in the queue. Further ones are together in "_other", as in
// observe.Counts.
const maxQueues = 128

const otherPolicy = "_other"

// queues has the options of times in the queue by policy, made once. The zero value is ready to use.
type queues struct {
	known   atomic.Pointer[map[string]*queue] // replaced, not changed
	growing sync.Mutex
}

// A queue has the options of a policy by result.
type queue struct{ allowed, canceled []metric.RecordOption }

// of returns the options for e, which waited.
func (q *queues) of(e *ratelimit.Event) []metric.RecordOption {
	longest := new(ratelimit.Result)
	for i := range e.Results {
		if r := &e.Results[i]; !r.Shadow && r.Wait >= longest.Wait {
			longest = r
		}
	}
	if e.Allowed {
		return q.options(longest.Policy).allowed
	}
	return q.options(longest.Policy).canceled
}

func (q *queues) options(policy string) *queue {
	if known := q.find(policy); known != nil {
		return known
	}
	q.growing.Lock()
	defer q.growing.Unlock()
	if known := q.find(policy); known != nil {
		return known
	}
	grown := make(map[string]*queue)
	if known := q.known.Load(); known != nil {
		if len(*known) >= maxQueues {
			policy = otherPolicy
		}
		maps.Copy(grown, *known)
	}
	with := func(result string) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(policyKey.String(policy), resultKey.String(result)))}
	}
	grown[policy] = &queue{with("allowed"), with("canceled")}
	q.known.Store(&grown)
	return grown[policy]
}

// find returns the options of a policy; nil if they are still to be made.
func (q *queues) find(policy string) *queue {
	known := q.known.Load()
	if known == nil {
		return nil
	}
	return cmp.Or((*known)[policy], (*known)[otherPolicy])
}
