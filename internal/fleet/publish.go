package fleet

import (
	"context"
	"time"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A Publisher publishes the snapshots of a replica. It is for one goroutine.
type Publisher struct {
	values store.Values
	name   string
	offset time.Duration // of the Store's clock from this process's
}

// NewPublisher returns a Publisher for the replica of a name, of letters, digits, dots, dashes and underscores.
func NewPublisher(values store.Values, name string) *Publisher {
	return &Publisher{values: values, name: name}
}

// Publish writes s. The value ends after [GoneAfter], by the clock of the Store: a value that was written while that was not
// known is written again.
func (p *Publisher) Publish(ctx context.Context, s *Snapshot) error {
	text, err := s.Encode()
	if err != nil {
		return err
	}
	for range 2 {
		until := time.Now().Add(p.offset + GoneAfter)
		now, _, err := p.values.WriteValue(ctx, setName, store.Value{Name: p.name, Text: text, Version: store.AnyVersion, Until: until})
		if err != nil {
			return err
		}
		const near = GoneAfter / 10
		if (time.Until(time.UnixMicro(now.Version)) - p.offset).Abs() < near {
			break
		}
		read, err := p.values.ReadValues(ctx, setName, now) // versions stay ahead of a clock that was set back
		if err != nil {
			return err
		}
		before := p.offset
		if p.offset = time.Until(read.Now); (p.offset - before).Abs() < near {
			break
		}
	}
	return nil
}
