package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/lua"
	"github.com/go-tokenbucket/ratelimit/store"
)

// ReadValues implements [store.Values]. One script call reads up to 500 values, so that it never holds up Redis. What
// somebody has written to the keys by hand is left out if it is no value. So is a value whose version is more than ten
// years ahead of the server's clock. Names and texts are in Redis as they are, also with a [Config.Secret]. ReadValues and
// WriteValue need the rights +hdel, +zadd, +zrange, +zrem and +persist, and those of Take. Their errors are those of Take,
// except ErrQueueFull.
func (s *Store) ReadValues(ctx context.Context, set string, after store.Value) (store.ValueChanges, error) {
	if err := store.ValidateAfter(set, after); err != nil {
		return store.ValueChanges{}, err
	}
	if err := s.engine.admit(ctx); err != nil {
		return store.ValueChanges{}, err
	}
	return within(ctx, s.engine, func(ctx context.Context) (store.ValueChanges, error) {
		return s.engine.readValues(ctx, set, after)
	})
}

// WriteValue implements [store.Values]. It is one script call.
func (s *Store) WriteValue(ctx context.Context, set string, v store.Value) (now store.Value, written bool, err error) {
	if err := store.ValidateValue(set, v); err != nil {
		return store.Value{}, false, err
	}
	if err := s.engine.admit(ctx); err != nil {
		return store.Value{}, false, err
	}
	held, err := within(ctx, s.engine, func(ctx context.Context) (outcome, error) {
		return s.engine.writeValue(ctx, set, v)
	})
	return held.value, held.written, uncharged(err)
}

// readValues reads a set page by page. The last value of a page is that after which the next one is read, so that a set
// which is lost meanwhile is read anew.
func (e *engine) readValues(ctx context.Context, set string, after store.Value) (changes store.ValueChanges, err error) {
	changes.All = after.Version == 0
	for from := strconv.FormatInt(after.Version, 10); from != ""; {
		reply, err := e.callValues(ctx, set, after.Name, after.Version, from)
		if err != nil {
			return store.ValueChanges{}, err
		}
		page, err := parsePage(reply)
		if err != nil {
			return store.ValueChanges{}, err
		}
		if page.anew {
			changes.All, changes.Values, after = true, nil, store.Value{}
		}
		if changes.Values = append(changes.Values, page.values...); len(changes.Values) > 0 {
			after = changes.Values[len(changes.Values)-1]
		}
		changes.Now, from = page.now, page.next
	}
	changes.Values = current(changes.Values, changes.Now)
	return changes, nil
}

// current returns the last value of each name, without those whose end has come. A value that is written between two pages
// is in both.
func current(values []store.Value, now time.Time) []store.Value {
	met := make(map[string]bool, len(values))
	slices.Reverse(values)
	values = slices.DeleteFunc(values, func(v store.Value) bool {
		again := met[v.Name]
		met[v.Name] = true
		return again || !v.Until.IsZero() && !now.Before(v.Until)
	})
	slices.Reverse(values)
	return values
}

// An outcome is what a set holds of a name after a write.
type outcome struct {
	value   store.Value
	written bool
}

func (e *engine) writeValue(ctx context.Context, set string, v store.Value) (held outcome, err error) {
	until := int64(0)
	if !v.Until.IsZero() {
		until = v.Until.Add(time.Microsecond - 1).UnixMicro()
	}
	reply, err := e.callValues(ctx, set, v.Name, v.Version, until, v.Text)
	if err != nil {
		return held, err
	}
	if len(reply) != 3 {
		return held, fmt.Errorf("redisstore: reply of %d parts to a write of a value", len(reply))
	}
	if reply[1] != int64(1) {
		if other, ok := parseValue(v.Name, reply[2]); ok {
			return outcome{value: other}, nil
		}
		return outcome{value: store.Value{Name: v.Name}}, nil
	}
	if v.Version, held.written = integer(reply[2], 1, maxTime); !held.written {
		return held, fmt.Errorf("redisstore: reply of the version %v to a write of a value", reply[2])
	}
	if until > 0 {
		v.Until = time.UnixMicro(until)
	}
	held.value = v
	return held, nil
}

// callValues runs values.lua. args are those after the clock.
func (e *engine) callValues(ctx context.Context, set string, args ...any) (reply []any, err error) {
	defer e.recovered(&err)
	keys := e.keys.set(set)
	clock := e.clockArgument()
	var cmd reading
	err = e.process(ctx, func(eval bool) redis.Cmder {
		command, script := "evalsha", lua.ValuesSHA1
		if eval {
			command, script = "eval", lua.Values
		}
		cmd = reading{redis.NewSliceCmd(ctx, append([]any{command, script, len(keys), keys[0], keys[1], keys[2], clock}, args...)...)}
		return cmd
	})
	if err != nil {
		return nil, e.explainValues(err, keys)
	}
	return cmd.Val(), nil
}

// set returns the keys of a set of values: its hash, and the sorted sets of its versions and its ends. They share a hash
// slot. Those of buckets go on with a colon.
func (k keys) set(name string) [3]string {
	hash := k.prefix + ":{" + plain(name) + "}"
	return [3]string{hash, hash + "#versions", hash + "#ends"}
}

// explainValues returns err with a remedy, if a right is missing or a key holds something else.
func (e *engine) explainValues(err error, keys [3]string) error {
	var answer redis.Error
	switch {
	case permissionOf(err).lacks():
		return fmt.Errorf("%w: the user of Redis needs the rights +hdel +zadd +zrange +zrem +persist, and those of buckets, on the keys %s:*", err, e.keys.prefix)
	case redis.HasErrorPrefix(err, "WRONGTYPE") && errors.As(err, &answer):
		return fmt.Errorf("redisstore: %w: delete the key that is not a hash, or not a sorted set, of %s", answer, strings.Join(keys[:], ", "))
	}
	return err
}

// mostAhead is how far the version of a value may be ahead of the server's clock, in microseconds: ten years, as in values.lua.
const mostAhead = 3650 * 24 * 3600 * 1_000_000

// A page is a reply of values.lua to a read.
type page struct {
	now    time.Time
	anew   bool
	next   string // where the next one begins, or ""
	values []store.Value
}

func parsePage(reply []any) (p page, err error) {
	if len(reply) < 3 || len(reply)%3 != 0 {
		return p, fmt.Errorf("redisstore: reply of %d parts to a read of values", len(reply))
	}
	now, ok := integer(reply[0], minTime, maxTime)
	if p.next, _ = reply[2].(string); !ok {
		return p, fmt.Errorf("redisstore: reply of the time %v to a read of values", reply[0])
	}
	p.now, p.anew = time.UnixMicro(now), reply[1] == int64(1)
	for of := range slices.Chunk(reply[3:], 3) {
		name, _ := of[0].(string)
		score, _ := of[1].(string)
		// Somebody may have written another version, or have deleted the value, by hand. A version that is far ahead would be
		// above all that are written later.
		v, ok := parseValue(name, of[2])
		if version, err := strconv.ParseFloat(score, 64); ok && err == nil && version == float64(v.Version) && v.Version <= now+mostAhead {
			p.values = append(p.values, v)
		}
	}
	return p, nil
}

// parseValue reads a field of the hash of values.
func parseValue(name string, field any) (v store.Value, ok bool) {
	text, _ := field.(string)
	version, rest, _ := strings.Cut(text, " ")
	end, text, found := strings.Cut(rest, " ")
	v = store.Value{Name: name, Text: text}
	v.Version, ok = integer(version, 1, maxTime-1)
	until, untilOK := integer(end, 0, maxTime-1)
	if until > 0 {
		v.Until = time.UnixMicro(until)
	}
	return v, ok && untilOK && found && name != "" && len(text) <= store.MaxValueText
}
