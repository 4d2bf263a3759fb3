package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/store"
)

// A holdings has the slots that this Store holds. In Redis, each key of a concurrency limit has a count for each holder, which
// is a Store. A count ends after a lease, if the holder does not renew it.
//
// A Store never sends what has changed. It sends the count that it holds, and how many slots it wants more: a claim. So a call
// that is lost, late or repeated does no harm. Each time a claim is sent, it has a higher sequence. Redis refuses a claim whose
// sequence is not above the last. A reply counts only if no later claim for its key was sent, because that claim did not
// include what the reply grants. Otherwise its calls are sent again. So that this is seldom, calls that take slots have a lane
// with one flight at a time, and a key is not renewed meanwhile.
//
// A release changes only the count here. A call without a caller, an assertion, then says it to Redis. Assertions also renew
// the counts. They have a lane of their own, so that no request waits for them. One whose reply is lost is repeated until it
// is confirmed, or until the lease of a released slot has passed.
type holdings struct {
	engine *engine
	lease  time.Duration

	mu       sync.Mutex
	holder   string // the name of this Store
	sequence int64  // of the last claim
	byName   map[name]*holding
	queue    dueQueue          // all of byName, by when they are due
	ready    map[*lane][]*call // assertions that flush sends together
	timer    *time.Timer       // for the first of queue, or to log
	armed    time.Time         // when timer fires; zero: it does not
	last     time.Time         // when holdings that were due were asserted
	stopped  bool              // by Close: nothing is sent any more but the last releases
	losses   losses
}

// A holding is the slots of one key.
type holding struct {
	name   name
	limit  store.Limit // of the last claim
	held   int64
	lost   int64 // slots that are to be released, but are not held any more
	others int64 // slots of other holders, at the last reply

	sequence    int64     // of the last claim
	sent        time.Time // when that was prepared, or an assertion was put into its lane
	unconfirmed bool      // it may have been carried out, but has no reply
	count       int64     // what Redis had after the last confirmed claim
	confirmed   time.Time // when that claim was prepared; zero: never, under this name
	claimed     time.Time // when the last claim of a slot was prepared
	doubt       time.Time // when a claim was lost, which may still reach Redis
	failed      time.Time // when the last assertion failed; zero: a later claim was confirmed

	flights  int  // with a claim of it
	asserted bool // an assertion waits in its lane, and no later call has claimed slots

	due   time.Time // when it is to be asserted, or forgotten
	index int       // in the queue
}

const (
	// renewEvery is the least time between calls that renew slots, so they are at most 40 a second.
	renewEvery = 25 * time.Millisecond

	// releaseEvery is that for calls that release slots. It is shorter than most round trips.
	releaseEvery = time.Millisecond

	// assertMost is how many keys are renewed at once.
	assertMost = 256

	// repeatEvery is the time after which a failed assertion is sent again.
	repeatEvery = 250 * time.Millisecond

	// assertTime is how long an assertion, or the reply to a call that takes slots, may take before the slots are asserted anew.
	assertTime = time.Second
)

func (s *holdings) init(e *engine, lease time.Duration) {
	s.engine, s.lease, s.byName, s.ready = e, lease, make(map[name]*holding), make(map[*lane][]*call)
	s.holder = newHolder()
}

// newHolder returns a random name.
func newHolder() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// A claim is what this Store says in a script about the slots that it holds of some keys. It is one of the arguments.
//
// The answer to it is 0, or one of slotsLost and claimConflict.
type claim struct {
	holder         string
	sequence, held int64
	mode           claimMode
	sent           time.Time     // when it was prepared
	until          time.Time     // until when a claim that is fresh, or to be kept, is that
	lease          time.Duration // of the slots
	waited         int64         // see term
}

// A claims lists the holdings whose slots a command claims, each time with the same sequence.
type claims struct {
	of       []*holding
	sequence int64
}

// A claimMode says what to do if Redis does not know of the slots.
type claimMode string

const (
	claimFresh claimMode = "fresh" // restore them: they were confirmed less than a lease ago
	claimLate  claimMode = "late"  // restore them if that many are free
	claimKeep  claimMode = "keep"  // as fresh, and remember the sequence, because an earlier claim may still arrive
	claimSame  claimMode = "same"  // this claim follows another one of the key, with the same sequence
)

const (
	slotsLost     = 1 // others have taken the slots, so none was held before the claim
	claimConflict = 2 // the sequence is not above the last: nothing was taken nor written
)

// atOnce is the unit of a concurrency limit, for scripts.
const atOnce = "at once"

// looks is the claim of a charge that claims nothing.
const looks = "- 0 0 look 0 -1"

// MarshalBinary implements encoding.BinaryMarshaler. The client calls it when it writes the command. A process that was
// stopped before that may not restore what others have taken meanwhile.
func (c *claim) MarshalBinary() ([]byte, error) { return []byte(c.text(time.Now())), nil }

// String is for hooks that print the arguments of commands.
func (c *claim) String() string { return c.text(time.Now()) }

func (c *claim) text(now time.Time) string {
	mode := c.mode
	if (mode == claimFresh || mode == claimKeep) && c.held > 0 && passed(c.until, now) {
		mode = claimLate
	}
	return fmt.Sprintf("%s %d %d %s %d %d", c.holder, c.sequence, c.held, mode, c.lease.Microseconds(), c.waited)
}

// passed reports whether t has passed. The monotonic clock stands still while a machine is suspended, and the other clock may
// be set back.
func passed(t, now time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// of returns the holding of a key.
func (s *holdings) of(of name) *holding {
	h := s.byName[of]
	if h == nil {
		h = &holding{name: of, index: -1}
		s.byName[of] = h
	}
	return h
}

// claim prepares the claims of commands, which are sent together, and returns the commands. It leaves out assertions that a
// later claim has overtaken: it says what they would, and its reply would not count.
func (s *holdings) claim(commands []command) []command {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sequence++
	for i := range commands {
		commands[i].entries = slices.DeleteFunc(commands[i].entries, s.overtaken)
	}
	commands = slices.DeleteFunc(commands, func(c command) bool { return len(c.entries) == 0 && c.reach == nil })
	var equal []*claim
	for i := range commands {
		c := &commands[i]
		c.claims = &claims{sequence: s.sequence}
		for j := range c.entries {
			items := c.entries[j].first.items
			for k := range items {
				if t := &items[k].term; t.acquires() || t.asserts {
					h := s.of(name{items[k].policy, items[k].key})
					t.claim = s.prepare(h, t, now, &equal)
					c.claims.of = append(c.claims.of, h)
				}
			}
		}
	}
	s.flush(now)
	return commands
}

// overtaken reports whether e is an assertion that need not be sent any more.
func (s *holdings) overtaken(e entry) bool {
	it := &e.first.items[0]
	if !it.term.asserts {
		return false
	}
	h := s.byName[name{it.policy, it.key}]
	if sent := it.term.claim; h != nil && sent != nil { // it has to be sent again
		return sent.sequence != h.sequence
	}
	return h == nil || !h.asserted
}

// prepare returns the claim of t for h. Equal claims are one, so that charges can share a term.
func (s *holdings) prepare(h *holding, t *term, now time.Time, equal *[]*claim) *claim {
	own := claim{
		holder: s.holder, sequence: s.sequence, held: h.held, mode: claimFresh, sent: now, until: h.confirmed.Add(s.lease),
		lease: s.lease, waited: t.waited,
	}
	if h.sequence == s.sequence {
		own.mode = claimSame
	} else {
		if h.flights > 0 || now.Before(h.doubt.Add(s.lease)) {
			own.mode = claimKeep
		}
		if h.held > 0 && passed(own.until, now) {
			own.mode = claimLate
		}
	}
	h.flights++
	h.asserted = false
	if h.held > 0 || t.need > 0 {
		h.claimed = now
	}
	h.limit, h.sequence, h.sent, h.unconfirmed = t.limit, s.sequence, now, true
	s.schedule(h, now)
	for _, c := range *equal {
		if c.mode == own.mode && c.held == own.held && c.waited == own.waited {
			if own.until.Before(c.until) {
				c.until = own.until
			}
			return c
		}
	}
	*equal = append(*equal, &own)
	return &own
}

// credit counts the slots that the calls of e have got, and gives them to the callers that have not left. It reports false if
// the reply does not count. Then the calls must be sent again, unless it returns an error.
func (s *holdings) credit(e *entry, reply []int64) (counts bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items, now := e.first.items, time.Now()
	counts, charged := true, false
	for i := range items {
		t := &items[i].term
		if t.claim == nil {
			charged = charged || t.need != 0 && reply[2*i] > 0
			continue
		}
		h := s.byName[name{items[i].policy, items[i].key}]
		var result int64
		if n := len(items); len(reply) > 2*n {
			result = reply[3*n+i]
		}
		// A process that was stopped may read the reply when the slots have ended.
		current := t.claim.holder == s.holder && t.claim.sequence == h.sequence && !passed(t.claim.sent.Add(s.lease), now)
		switch {
		case !current:
			counts = false
		case result == claimConflict:
			if t.claim.mode != claimSame {
				s.rename()
			}
			if reply[2*i] = -1; !t.shadow {
				counts = false
			}
		default:
			s.confirm(h, t, reply[2*i], reply[2*i+1], result == slotsLost)
		}
	}
	if !counts {
		if charged { // a second time would be once too often
			err = late(context.DeadlineExceeded)
		}
		return false, err
	}
	turn := int64(0)
	for c, next := e.first, (*call)(nil); c != nil; c = next {
		next = c.next
		given := false
		for i := range items {
			if items[i].term.claim != nil && turn < reply[2*i] {
				if given = given || c.credit(); given {
					s.byName[name{items[i].policy, items[i].key}].held += items[i].term.need
				}
			}
		}
		turn++
	}
	return true, nil
}

// confirm notes the reply to the last claim of h: how many calls took slots, and how many are free after them.
func (s *holdings) confirm(h *holding, t *term, times, free int64, lost bool) {
	c := t.claim
	if c.mode != claimSame {
		h.count, h.confirmed, h.failed = c.held, c.sent, time.Time{}
		// A refused claim of nothing has changed nothing: what an earlier one has left is still there.
		h.unconfirmed = c.mode == claimKeep && c.held == 0 && times == 0 && t.need > 0
	}
	if lost {
		s.losses.add(h.name.policy, h.held)
		h.lost, h.held, h.count = h.lost+h.held, 0, 0
	}
	h.count += times * t.need
	h.others = t.limit.Capacity - free - h.count
}

// rename gives this Store another name, because there is another one of the same: this process is a copy, or was copied.
func (s *holdings) rename() {
	s.holder = newHolder()
	now := time.Now()
	for _, h := range s.byName {
		h.confirmed, h.count, h.unconfirmed = time.Time{}, 0, true
		s.schedule(h, now)
	}
}

// land notes that commands are back, which claim has prepared. asserting is whether they are assertions.
func (s *holdings) land(commands []command, asserting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range commands {
		c := &commands[i]
		untried := c.stale && isRedis(c.err) || certain(c.err) || errors.Is(c.err, redis.Nil) ||
			redis.HasErrorPrefix(c.err, "NOSCRIPT") || redis.HasErrorPrefix(c.err, "CROSSSLOT")
		for _, h := range c.claims.of {
			switch {
			case c.err == nil:
			case !untried:
				h.doubt = now
			case h.sequence == c.claims.sequence:
				h.unconfirmed = now.Before(h.doubt.Add(s.lease))
			}
			if h.flights--; asserting && c.err != nil && !errors.Is(c.err, redis.Nil) {
				h.failed = now
			}
			s.schedule(h, now)
		}
	}
	s.log(now)
	s.flush(now)
}

// giveBack releases n slots of a key. It returns how many seem to be free then, and whether some of the n were lost before.
func (s *holdings) giveBack(policy, key string, l store.Limit, n int64) (free int64, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byName[name{policy, key}]
	if h == nil {
		return l.Capacity, true
	}
	gone := min(n, h.lost)
	freed := min(n-gone, h.held)
	h.lost -= gone
	h.held -= freed
	free = min(l.Capacity, l.Capacity-h.others-h.held)
	now := time.Now()
	s.schedule(h, now)
	s.flush(now)
	return free, freed < n
}

// A losses counts the slots that were lost, by policy.
type losses struct {
	all, fresh map[string]int64 // fresh ones are to be logged
	logged     time.Time
}

// logEvery is the least time between log lines.
const logEvery = time.Second

func (l *losses) add(policy string, n int64) {
	if l.all == nil {
		l.all, l.fresh = make(map[string]int64), make(map[string]int64)
	}
	l.all[policy] += n
	l.fresh[policy] += n
}

// log logs fresh losses.
func (s *holdings) log(now time.Time) {
	if len(s.losses.fresh) == 0 || now.Before(s.losses.logged.Add(logEvery)) {
		return
	}
	for policy, n := range s.losses.fresh {
		s.engine.logger.Warn("redisstore: slots were lost that requests still hold: this process was out of touch with Redis for longer than Config.SlotLease", "policy", policy, "slots", n)
	}
	clear(s.losses.fresh)
	s.losses.logged = now
}

// stats returns nil if no slot was ever taken.
func (s *holdings) stats() *store.SlotStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sequence == 0 {
		return nil
	}
	stats := &store.SlotStats{Held: make(map[string]int64), Lost: maps.Clone(s.losses.all)}
	for _, h := range s.byName {
		if h.held > 0 {
			stats.Held[h.name.policy] += h.held
		}
	}
	return stats
}
