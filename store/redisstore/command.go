package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A command is one call of a script, for entries whose keys it may use together.
type command struct {
	entries []entry
	claims  *claims // of its slots, or nil
	reach   *reach  // instead of entries
	sent    redis.Cmder
	err     error

	guarded int64     // the number of its guard
	began   time.Time // when the guard was made
	digits  [20]byte

	script  script
	eval    bool  // send the text of the script, because the server does not have it
	across  bool  // the keys have several hash slots, and are not declared
	general bool  // take.lua answers it, because a faster script has not
	stale   bool  // the guard is empty, because callers had left when the client wrote the command
	retried bool  // it is sent again after a stale one
	renewed uint8 // how often it was sent again because of a wrong period
}

// A guard is a number among the arguments of a command, by which a call is not charged if its caller leaves before it is
// sent. The client asks for it when it writes the command. That can be long after the flight has begun: the client waits
// for connections and handshakes, and follows redirects. If callers have left by then, the guard is empty. The script
// then fails before it reads a bucket, and the calls of the other callers are sent again.
//
// The others are sent again once, and only if each of them has as much time left as the first try took. Otherwise the
// command is sent as it is, which also charges the calls of callers that have left. A client that lacks connections
// would serve nobody without this rule.
//
// An error of MarshalBinary would not do: the client would close the connection, and the next calls would wait for a
// handshake again.
type guard command

// guard returns n as an argument of c.
func (c *command) guard(n int64) *guard {
	c.guarded, c.began = n, time.Now()
	return (*guard)(c)
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (g *guard) MarshalBinary() ([]byte, error) {
	if g.stale = g.stale || g.outlived(time.Now()); g.stale {
		return nil, nil
	}
	return strconv.AppendInt(g.digits[:0], g.guarded, 10), nil
}

// outlived reports whether callers have left, and the others, if any, have the time for another command.
func (g *guard) outlived(now time.Time) bool {
	someLeft, needed := false, now.Sub(g.began)
	for _, e := range g.entries {
		for c := e.first; c != nil; c = c.next {
			if c.stage.Load() == left {
				someLeft = true
				continue
			}
			if g.retried || c.limited && c.deadline.Sub(now) <= needed {
				return false
			}
		}
	}
	return someLeft
}

// String is for hooks that print the arguments of commands.
func (g *guard) String() string { return strconv.FormatInt(g.guarded, 10) }

// The client sends these commands only once, also after a timeout or a lost connection. Redis may have carried out a
// once, an onceInt or a swapping, and a charge must not be made twice. A reading ends as soon as a Take does. An onceInt
// is for takeOne and takeSlot. It holds its arguments and the parsed reply, to save allocations.
type (
	once    struct{ *redis.IntSliceCmd }
	onceInt struct {
		redis.IntCmd
		args  [4 + 5]any
		reply [2]int64
	}
	reading  struct{ *redis.SliceCmd }
	swapping struct{ *redis.Cmd }
)

func (once) NoRetry() bool     { return true }
func (*onceInt) NoRetry() bool { return true }
func (reading) NoRetry() bool  { return true }
func (swapping) NoRetry() bool { return true }

// prepare builds what is sent: the script, the number of keys, the keys, and the arguments that the head of the
// script lists.
func (c *command) prepare(ctx context.Context, clock func() time.Time, s script) {
	c.script = s
	if s.alone() {
		c.prepareAlone(ctx)
		return
	}
	var few [4]term
	terms := c.sort(few[:0])

	charges := c.charges()
	declared := charges
	if s == takeAcross {
		declared = 0
	}
	args := make([]any, 0, 6+2*charges+7*len(terms)+3*len(c.entries))
	args = append(append(args, c.script.command(c.eval)[:]...), declared)
	for i := range c.entries {
		for j := range c.entries[i].first.items {
			args = append(args, c.entries[i].first.items[j].name)
		}
	}
	if clock == nil {
		args = append(args, "")
	} else {
		args = append(args, clock().UnixMicro())
	}
	args = append(args, c.guard(int64(len(terms))))
	for _, t := range terms {
		switch {
		case t.period != nil:
			args = append(args, t.period.text, fmt.Sprintf("%d %d", t.period.from, t.period.until))
		case t.claim != nil:
			args = append(args, atOnce, t.claim)
		case t.limit.IsConcurrency():
			args = append(args, atOnce, looks)
		default:
			args = append(args, t.limit.Unit, t.limit.Refill)
		}
		args = append(args, t.limit.Capacity, t.need, t.debt, t.shadow, t.lock)
	}
	for i := 0; i < len(c.entries); {
		e := &c.entries[i]
		run := 1
		if e.lone != 0 {
			for i+run < len(c.entries) && c.entries[i+run].lone == e.lone {
				run++
			}
		}
		args = append(args, run, e.count, len(e.first.items))
		for j := range e.first.items {
			args = append(args, 1+slices.Index(terms, e.first.items[j].term))
		}
		i += run
	}
	if s == takeAcross {
		c.sent = acrossSlots(redis.NewIntSliceCmd(ctx, append(args, charges)...))
		return
	}
	c.sent = once{redis.NewIntSliceCmd(ctx, args...)}
}

// prepareAlone is prepare for the scripts of a single call.
func (c *command) prepareAlone(ctx context.Context) {
	items := c.entries[0].first.items
	var one *onceInt
	var args []any
	if c.script == takeOne || c.script == takeSlot {
		one = new(onceInt)
		args = one.args[:0]
	} else {
		args = make([]any, 0, 3+6*len(items))
	}
	args = append(append(args, c.script.command(c.eval)[:]...), len(items))
	for i := range items {
		args = append(args, items[i].name)
	}
	for i := range items {
		t := &items[i].term
		var capacity any
		if i == 0 {
			capacity = c.guard(t.limit.Capacity)
		} else {
			capacity = t.limit.Capacity
		}
		switch {
		case c.script == takeSlot:
			args = append(args, capacity, t.claim, t.need)
		case c.script == takeQuota:
			limit := strconv.FormatInt(t.limit.Capacity, 10) + " " + t.period.text
			args = append(args, capacity, limit, t.period.from, t.period.until)
			if t.need != 1 {
				args = append(args, t.need)
			}
		case c.script == takeFew:
			args = append(args, t.limit.Unit, t.limit.Refill, capacity, t.need, t.debt)
		case t.limit.Refill != 1 || t.debt != 0:
			args = append(args, t.limit.Unit, capacity, t.need, t.limit.Refill, t.debt)
		case t.need != t.limit.Unit:
			args = append(args, t.limit.Unit, capacity, t.need)
		default:
			args = append(args, t.limit.Unit, capacity)
		}
	}
	if one != nil {
		one.IntCmd = *redis.NewIntCmd(ctx, args...)
		c.sent = one
	} else {
		c.sent = once{redis.NewIntSliceCmd(ctx, args...)}
	}
}

// reply returns two integers for each charge, as from take.lua.
func (c *command) reply() []int64 {
	if sent, ok := c.sent.(*onceInt); ok {
		sent.reply = [2]int64{sent.Val() & 1, sent.Val() >> 1}
		return sent.reply[:]
	}
	reply := c.sent.(once).Val()
	if c.script == takeQuota && len(reply) == 2 {
		return []int64{reply[0] & 1, reply[0] >> 1, -1, reply[1]}
	}
	return reply
}

// early returns the time of the server if it is not in the period of a quota of c, so that nothing was charged. Else it
// returns 0.
func (c *command) early() int64 {
	if sent, ok := c.sent.(once); ok && len(sent.Val()) == 1 {
		return sent.Val()[0]
	}
	return 0
}

// sort groups the calls of one charge that ask the same of different keys. The script handles each group as a run.
// sort appends all terms to terms.
func (c *command) sort(terms []term) []term {
	for i := range c.entries {
		e := &c.entries[i]
		for j := range e.first.items {
			number := slices.Index(terms, e.first.items[j].term)
			if number < 0 {
				number = len(terms)
				terms = append(terms, e.first.items[j].term)
			}
			e.lone = 0
			if e.count == 1 && len(e.first.items) == 1 && terms[number].claim == nil { // claims of a key stay in their order
				e.lone = number + 1
			}
		}
	}
	slices.SortStableFunc(c.entries, func(a, b entry) int { return cmp.Compare(a.lone, b.lone) })
	return terms
}

// answer finishes the entries that were answered. It returns commands for the others, where a key holds no bucket.
// Each of these is sent separately, so that only the broken one fails. Across slots, the reason may be a key that the
// server does not serve. Then nothing of the call was carried out, and it is sent again with its keys declared.
//
// An entry that claims slots is sent again, together with others, if its reply does not count: see holdings.
func (c *command) answer(h *holdings) (again []command) {
	reply := c.reply()
	charges := c.charges()
	if len(reply) < 2*charges || len(reply)%2 != 0 {
		c.finish(fmt.Errorf("redisstore: reply of %d integers to %d charges", len(reply), charges))
		return nil
	}
	reply, tail := reply[:2*charges], reply[2*charges:]
	last := 0 // the number of the last charge before entry i
	var reclaim []entry
	for i := range c.entries {
		e := &c.entries[i]
		n := 2 * len(e.first.items)
		first := last
		last += len(e.first.items)
		switch {
		case c.across && e.untouched(reply[:n]):
			if sameSlot(e.first.items) {
				again = append(again, command{entries: c.entries[i : i+1]})
			} else {
				e.finish(nil, errSpread)
			}
		case !e.vetoed(reply[:n]):
			whole := reply[:n:n]
			if len(tail) > 0 && max(tail[0], -tail[0]) <= int64(last) {
				whole, tail = e.long(whole, tail, first)
			}
			if c.claims == nil {
				e.finish(whole, nil)
			} else if counts, err := h.credit(e, whole); counts || err != nil {
				e.finish(whole, err)
			} else {
				reclaim = append(reclaim, *e)
			}
		case len(c.entries) > 1:
			again = append(again, command{entries: c.entries[i : i+1]})
		default:
			e.finish(nil, errNoBucket)
		}
		reply = reply[n:]
	}
	if reclaim != nil {
		again = append(again, command{entries: reclaim, across: c.across})
	}
	return again
}

func (c *command) charges() (n int) {
	for i := range c.entries {
		n += len(c.entries[i].first.items)
	}
	return n
}

func (c *command) finish(err error) {
	for i := range c.entries {
		c.entries[i].finish(nil, err)
	}
}

// sameSlot reports whether all keys share a hash slot.
func (c *command) sameSlot() bool {
	for i := range c.entries {
		if c.entries[i].slot() != c.entries[0].slot() || !sameSlot(c.entries[i].first.items) {
			return false
		}
	}
	return true
}

// split returns a command for each hash slot. An entry whose own keys are in several slots is finished with
// errSpread.
func (c *command) split() []command {
	kept := c.entries[:0]
	for i := range c.entries {
		if e := c.entries[i]; sameSlot(e.first.items) {
			kept = append(kept, e)
		} else {
			e.finish(nil, errSpread)
		}
	}
	return groupBySlot(kept)
}

// apart returns a command for each entry.
func (c *command) apart() (commands []command) {
	for i := range c.entries {
		commands = append(commands, command{entries: c.entries[i : i+1]})
	}
	return commands
}

// groupBySlot returns a command for the entries of each hash slot.
func groupBySlot(entries []entry) (commands []command) {
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.slot(), b.slot()) })
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].slot() == entries[0].slot() {
			n++
		}
		commands = append(commands, command{entries: entries[:n]})
		entries = entries[n:]
	}
	return commands
}
