package lua_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
)

const lease = int64(15_000_000)

// looks is the claim of a charge that claims nothing.
const looks = "- 0 0 look 0 -1"

// A claim is what a holder says about its slots of a key.
type claim struct {
	holder         string
	sequence, held int64
	mode           string
	waited         int64
}

func (c claim) String() string {
	return fmt.Sprint(c.holder, " ", c.sequence, " ", c.held, " ", c.mode, " ", lease, " ", c.waited)
}

// slotsTerm is of need slots out of n.
func slotsTerm(n, need int64, claim string) term {
	l, err := bucket.NewConcurrency(n)
	if err != nil {
		panic(err)
	}
	return term{limit: l, need: need, claim: claim}
}

// A slotCharge is a charge of slots, or of a rate if its claim has no mode.
type slotCharge struct {
	charge
	claim
}

// A slotKey is what Redis should keep of a key. Fields that have ended stay until the next write.
type slotKey struct {
	limit        string // under a block, too
	blocked      bool   // until a write after the block has ended
	blockedUntil int64
	holds        map[string]slotHold
	waits        map[string]slotWait
	rate         bucket.Bucket
}

type slotHold struct{ count, ends, sequence int64 }

type slotWait struct{ since, ends int64 }

// A slotModel answers calls as the head of take.lua says.
type slotModel struct {
	keys   map[string]*slotKey
	expiry map[string]float64 // of keys, at the last look
	now    int64
	met    map[string]int
}

func (m *slotModel) key(name string) *slotKey {
	if k := m.keys[name]; k != nil {
		return k
	}
	return &slotKey{holds: map[string]slotHold{}, waits: map[string]slotWait{}}
}

func limitText(l bucket.Limit) string {
	if l.IsConcurrency() {
		return fmt.Sprint(l.Capacity, " at once")
	}
	return fmt.Sprint(l.Unit, " ", l.Refill, " ", l.Capacity)
}

func areSlots(limit string) bool { return limit == "" || strings.HasSuffix(limit, " at once") }

func (k *slotKey) isBlocked(now int64) bool { return k.blocked && k.blockedUntil > now }

// counts reports whether a field of slots that ends then counts for something.
func (k *slotKey) counts(ends, now int64) bool { return areSlots(k.limit) && ends > now }

func (k *slotKey) waitCounts(w slotWait, now int64) bool {
	return k.counts(w.ends, now) && w.ends <= now+250_000
}

// forget removes a key.
func (m *slotModel) forget(name string) {
	delete(m.keys, name)
	delete(m.expiry, name)
}

// A slotView is what a charge finds.
type slotView struct {
	free, held     int64
	lost, conflict bool
	fits           int64
	rate           bucket.Bucket
	moved          bool // a rate: also a denied charge writes it
}

func (m *slotModel) view(ch slotCharge, count int64) (v slotView) {
	k := m.key(ch.key)
	if ch.mode == "" {
		was, b := bucket.Limit{}, ch.limit.Reanchor(k.rate, m.now)
		if v.moved = k.limit != ""; k.limit == limitText(ch.limit) {
			was, v.moved = ch.limit, b != k.rate
		}
		v.rate = ch.limit.Advance(&was, b, m.now)
		v.free = v.rate.Tokens
		v.fits = ch.limit.Grants(v.free, ch.need, 0, count)
		return v
	}
	others, earlier := int64(0), int64(0)
	for name, h := range k.holds {
		if name != ch.holder && k.counts(h.ends, m.now) {
			others += h.count
		}
	}
	for name, w := range k.waits {
		if name != ch.holder && k.waitCounts(w, m.now) && w.since < m.now-max(ch.waited, 0) {
			earlier++
		}
	}
	own, stored := k.holds[ch.holder]
	present := stored && k.counts(own.ends, m.now)
	if !present {
		own.count = 0
	}
	switch ch.mode {
	case "look":
		v.held = own.count
	case "same":
		v.held, v.conflict = own.count, present && own.sequence != ch.sequence
	default:
		v.held, v.conflict = ch.held, stored && ch.sequence <= own.sequence
		switch {
		case v.conflict:
			v.held = own.count
		case !present && ch.held > 0 && ch.mode == "late" && others+ch.held > ch.limit.Capacity:
			v.held, v.lost = 0, true
			m.met["lost"]++
		case !present && ch.held > 0:
			m.met["restored"]++
		}
	}
	v.free = ch.limit.Capacity - others - v.held - earlier
	switch {
	case v.conflict:
		m.met["conflicts"]++
	case ch.need <= 0:
		v.fits = count
	case !k.isBlocked(m.now) && v.free >= ch.need:
		v.fits = min(count, v.free/ch.need)
	case !k.isBlocked(m.now) && v.free+earlier >= ch.need:
		m.met["kept for an earlier waiter"]++
	}
	return v
}

// answer answers a call, and adds to the ends of the reply.
func (m *slotModel) answer(count int64, charges []slotCharge, done int64) (reply, ends []int64) {
	views, granted := make([]slotView, len(charges)), count
	for i, ch := range charges {
		if views[i] = m.view(ch, count); !ch.shadow {
			granted = min(granted, views[i].fits)
		}
	}
	for i, ch := range charges {
		v := views[i]
		times := min(v.fits, granted)
		var left int64
		if ch.mode == "" {
			left = m.chargeRate(ch, v, times)
		} else {
			left = m.chargeSlots(ch, v, times)
		}
		reply = append(reply, times, left)
		if k := m.key(ch.key); ch.mode != "" && k.isBlocked(m.now) {
			ends = append(ends, done+int64(i)+1, k.blockedUntil-m.now)
		}
		switch {
		case v.conflict:
			ends = append(ends, -done-int64(i)-1, 2)
		case v.lost:
			ends = append(ends, -done-int64(i)-1, 1)
		}
	}
	return reply, ends
}

func (m *slotModel) chargeRate(ch slotCharge, v slotView, times int64) int64 {
	if times == 0 && !v.moved {
		return v.free
	}
	k := m.key(ch.key)
	k.limit, k.rate = limitText(ch.limit), v.rate
	k.rate.Tokens = ch.limit.Charge(v.free, ch.need, 0, times)
	m.keys[ch.key] = k
	return k.rate.Tokens
}

func (m *slotModel) chargeSlots(ch slotCharge, v slotView, times int64) int64 {
	k, free := m.key(ch.key), v.free
	reset := ch.need == bucket.Reset
	own, stored := k.holds[ch.holder]
	present := stored && k.counts(own.ends, m.now)
	if v.conflict || ch.mode == "look" && (!reset || times == 0) || ch.need == 0 && !areSlots(k.limit) {
		return free
	}
	count := v.held
	if ch.need > 0 {
		count += times * ch.need
		free -= times * ch.need
	}
	waits := ch.need > 0 && times == 0 && ch.waited >= 0 && (k.isBlocked(m.now) || v.free < ch.need)
	moved := false
	for name, h := range k.holds {
		if name != ch.holder && k.counts(h.ends, m.now) && h.ends > m.now+lease && ch.mode != "look" {
			moved = true
		}
	}
	if ch.need > 0 && count == 0 && !present && ch.mode != "keep" && !waits && !moved {
		m.met["denials that write nothing"]++
		return free
	}

	// A write begins with what has ended.
	for name, h := range k.holds {
		switch {
		case name == ch.holder:
		case !k.counts(h.ends, m.now):
			delete(k.holds, name)
		case moved:
			h.ends = min(h.ends, m.now+lease)
			k.holds[name] = h
		}
	}
	for name, w := range k.waits {
		if name != ch.holder && !k.waitCounts(w, m.now) {
			delete(k.waits, name)
		}
	}
	writes := moved || waits
	switch {
	case reset:
		if k.isBlocked(m.now) {
			k.blockedUntil, writes = m.now, true
		}
		if len(k.holds)+len(k.waits) == 0 {
			m.forget(ch.key)
			m.met["resets"]++
			return free
		}
	case count > 0 || ch.mode == "keep" || ch.mode == "same" && present:
		k.holds[ch.holder], writes = slotHold{count, m.now + lease, ch.sequence}, true
	case ch.need == 0 || present:
		delete(k.holds, ch.holder)
	}
	if waits {
		k.waits[ch.holder] = slotWait{m.now - ch.waited, m.now + 250_000}
		m.met["waits"]++
	} else if ch.need > 0 && times > 0 {
		delete(k.waits, ch.holder)
	}
	switch {
	case writes:
		k.limit = limitText(ch.limit)
		k.blocked = k.isBlocked(m.now)
		m.keys[ch.key] = k
	case len(k.holds)+len(k.waits) == 0 && !k.isBlocked(m.now):
		if m.keys[ch.key] != nil {
			m.met["removed"]++
		}
		m.forget(ch.key)
	}
	return free
}

// block blocks a key for span, or ends its block if that is 0.
func (m *slotModel) block(name string, span int64) {
	k := m.key(name)
	switch {
	case span > 0:
		k.blocked, k.blockedUntil = true, m.now+span
		m.keys[name] = k
	case k.blocked && k.limit == "":
		m.forget(name)
	case k.blocked:
		k.blocked, k.blockedUntil = false, m.now
	}
}

// compare checks what a server keeps of a key, and for how long.
func (m *slotModel) compare(name string, hash map[string]string) error {
	k, want := m.keys[name], map[string]string{}
	if k == nil {
		if len(hash) > 0 {
			return fmt.Errorf("%s is %v, want none", name, hash)
		}
		return nil
	}
	for _, field := range []string{"limit", "blocked_limit", "blocked_until", "tokens", "last_refill"} {
		want[field] = hash[field]
	}
	if want["limit"] = k.limit; k.blocked {
		want["limit"], want["blocked_limit"], want["blocked_until"] = "blocked", k.limit, fmt.Sprint(k.blockedUntil)
	}
	if !areSlots(k.limit) {
		want["tokens"], want["last_refill"] = fmt.Sprint(k.rate.Tokens), fmt.Sprint(k.rate.At)
	}
	lasts := int64(0)
	for holder, h := range k.holds {
		want["held_by:"+holder] = fmt.Sprint(h.count, " ", h.ends, " ", h.sequence)
		lasts = max(lasts, h.ends)
	}
	for holder, w := range k.waits {
		want["waits:"+holder] = fmt.Sprint(w.since, " ", w.ends)
	}
	ends, err := strconv.ParseFloat(hash["ends"], 64)
	if err != nil {
		return err
	}
	if areSlots(k.limit) && ends < float64(lasts) {
		return fmt.Errorf("%s expires at %.0f: %v", name, ends, hash)
	}
	if before := m.expiry[name]; ends < before {
		return fmt.Errorf("%s expires at %.0f, which was %.0f before: %v", name, ends, before, hash)
	}
	m.expiry[name] = ends
	maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
	got := maps.Clone(hash)
	for _, field := range []string{"ends", "blocked_since", "blocked_reason"} {
		delete(got, field)
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("%s is %v\nwant %v", name, got, want)
	}
	return nil
}

// A slotHolder is a replica, as it knows itself.
type slotHolder struct {
	name     string
	sequence int64
	held     map[string]int64
}

func TestSlotsAreHeldAsHoldersSay(t *testing.T) {
	testSlots(t, startServer(t, movableAll(t)...), uint64(testsize.Of(6, 60)), true)
}

func TestSlotsAreHeldAlikeAcrossHashSlots(t *testing.T) {
	testSlots(t, acrossOf(startServer(t, movableAcross(t)...)), uint64(testsize.Of(3, 20)), false)
}

func TestSlotsAreHeldAlikeInLua54(t *testing.T) {
	testSlots(t, startInterpreter(t, movableAll(t)...), uint64(testsize.Of(6, 10)), true)
}

// isLoneClaim reports whether take_slot.lua is for calls.
func isLoneClaim(calls []call, form []slotCharge) bool {
	return len(calls) == 1 && calls[0].count == 1 && len(form) == 1 && form[0].mode != "" && form[0].mode != "look" && !form[0].shadow
}

// testSlots compares random calls for slots with a model. Holders miss replies, repeat themselves, or have a clone. Redis
// loses keys, its clock jumps, and keys are blocked or used by a rate. Calls have other limits beside slots.
func testSlots(t *testing.T, s server, seeds uint64, alone bool) {
	met := make(map[string]int)
	rate := newLimit(t, 1, time.Second, 4)
	for seed := range seeds {
		s.flush()
		r := rand.New(rand.NewPCG(seed, 31))
		calm := alone && seed%2 == 0 // most calls are lone, and little happens besides
		m := &slotModel{keys: map[string]*slotKey{}, expiry: map[string]float64{}, now: 1_780_000_000_000_000, met: met}
		var holders []*slotHolder
		for i := range 4 {
			holders = append(holders, &slotHolder{fmt.Sprintf("%016x", i), 10, map[string]int64{}})
		}
		limits := map[string]int64{"k0": 1 + r.Int64N(4), "k1": 1 + r.Int64N(4)}
		for step := range 300 {
			switch r.IntN(20) {
			case 0:
				m.now += r.Int64N(2 * lease)
			case 1:
				m.now -= r.Int64N([]int64{1_000_000, 3 * lease}[r.IntN(2)])
			case 2, 3, 4, 5:
				m.now += r.Int64N(3_000_000)
			default:
				m.now += r.Int64N(150_000)
			}
			s.set("seconds", m.now/1_000_000)
			s.set("microseconds", m.now%1_000_000)
			before := map[string]map[string]string{"k0": s.hash("k0"), "k1": s.hash("k1"), "r": s.hash("r")}
			for _, name := range []string{"k0", "k1"} {
				if m.expiry[name] <= float64(m.now) || r.IntN(60) == 0 { // expired, or lost by Redis
					s.del(name)
					m.forget(name)
					before[name] = nil
				}
				if r.IntN(12) == 0 {
					limits[name] = 1 + r.Int64N(4)
				}
				if !calm && r.IntN(15) == 0 {
					span := r.Int64N(2) * (1 + r.Int64N(lease))
					s.use(useBlock)
					_, err := s.run([]string{name}, []any{"", span, "by a test"})
					if s.use(useTake); err != nil {
						t.Fatal(err)
					}
					m.block(name, span)
				}
			}

			h := holders[r.IntN(len(holders))]
			h.sequence++
			sequence := h.sequence
			if r.IntN(12) == 0 { // a late call, or one of a clone
				sequence -= 1 + r.Int64N(3)
			}
			var calls []call
			var forms [][]slotCharge
			claimed := map[string]bool{}
			lone := calm && r.IntN(8) > 0
			for range 1 + r.IntN(3) {
				if lone && len(calls) == 1 {
					break
				}
				var form []slotCharge
				count := int64(1)
				for _, name := range []string{"k0", "k1", "r"} {
					if r.IntN(2) == 0 || lone && (name == "r" || len(form) == 1) {
						continue
					}
					if name == "r" || !calm && r.IntN(40) == 0 && !m.key(name).blocked {
						form = append(form, slotCharge{charge: charge{name, term{limit: rate, need: rate.Unit, shadow: r.IntN(3) == 0}}})
						continue
					}
					c := claim{h.name, sequence, h.held[name], []string{"fresh", "fresh", "late", "keep"}[r.IntN(4)], -1}
					need := min(r.Int64N(4), 2)
					if !calm && r.IntN(3) == 0 {
						c.waited = r.Int64N(400_000)
					}
					if claimed[name] {
						c.mode = "same"
					}
					text := c.String()
					switch {
					case r.IntN(10) == 0:
						c = claim{mode: "look", holder: "-", waited: -1}
						if text, need = looks, 0; r.IntN(3) == 0 {
							need = bucket.Reset
						}
					case need == 0 && !claimed[name]: // a release, or a renewal
						c.held = r.Int64N(c.held + 1)
						h.held[name], text = c.held, c.String()
						claimed[name] = true
					default:
						claimed[name] = true
					}
					term := slotsTerm(limits[name], need, text)
					term.shadow = r.IntN(6) == 0
					form = append(form, slotCharge{charge{name, term}, c})
				}
				if len(form) == 0 {
					continue
				}
				if !lone && r.IntN(3) == 0 {
					count = 1 + r.Int64N(3)
				}
				r.Shuffle(len(form), func(i, j int) { form[i], form[j] = form[j], form[i] })
				c := call{count: count}
				for _, ch := range form {
					c.charges = append(c.charges, ch.charge)
				}
				calls, forms = append(calls, c), append(forms, form)
			}
			if len(calls) == 0 {
				continue
			}
			keys, args := arguments("", calls)
			got, err := []int64(nil), error(redis.Nil)
			if form := forms[0]; alone && r.IntN(4) > 0 && isLoneClaim(calls, form) {
				s.use(useSlot)
				got, err = s.run([]string{form[0].key}, []any{form[0].limit.Capacity, form[0].term.claim, form[0].need})
				if s.use(useTake); err == nil {
					got = []int64{got[0] & 1, got[0] >> 1}
					met["lone"]++
				}
			}
			if errors.Is(err, redis.Nil) {
				got, err = s.run(keys, args)
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %+v: %v", seed, step, calls, err)
			}
			var want, ends []int64
			replyLost := r.IntN(5) == 0
			for i, form := range forms {
				first := int64(len(want) / 2)
				reply, more := m.answer(calls[i].count, form, first)
				want, ends = append(want, reply...), append(ends, more...)
				for j, ch := range form {
					if ch.mode == "" || ch.mode == "look" {
						continue
					}
					if times := reply[2*j]; times > 0 && ch.need > 0 {
						met["grants"]++
						m.checkGrant(t, ch.key, ch.limit.Capacity)
						if !replyLost {
							h.held[ch.key] += times * ch.need
						}
					}
				}
				for j := 0; j < len(more); j += 2 {
					if ch := form[max(more[j], -more[j])-first-1]; more[j] < 0 && more[j+1] == 1 && !replyLost {
						h.held[ch.key] = 0
					} else if more[j] < 0 && r.IntN(2) == 0 {
						h.name = fmt.Sprintf("%016x", r.Uint64())
					}
				}
			}
			if want = append(want, ends...); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %+v at %d\ngot  %v\nwant %v\nwas %v", seed, step, calls, m.now, got, want, before)
			}
			for _, name := range []string{"k0", "k1"} {
				if err := m.compare(name, s.hash(name)); err != nil {
					t.Fatalf("seed %d, step %d: %+v at %d: %v\nwas %v", seed, step, calls, m.now, err, before)
				}
			}
		}
		// When all is released and has ended, nothing is left.
		m.now += 1000 * lease
		s.set("seconds", m.now/1_000_000)
		for _, name := range []string{"k0", "k1"} {
			s.del(name)
			for i, c := range []claim{{holders[0].name, 1 << 50, 0, "fresh", -1}, {holders[1].name, 1 << 50, 0, "fresh", -1}, {holders[0].name, 1 << 51, 0, "fresh", -1}, {holders[1].name, 1 << 51, 0, "fresh", -1}} {
				need := int64(1 - i/2)
				keys, args := arguments("", []call{{1, []charge{{name, slotsTerm(2, need, c.String())}}}})
				if got, err := s.run(keys, args); err != nil || got[0] != 1 {
					t.Fatalf("%v: %v, %v", c, got, err)
				}
			}
			if hash := s.hash(name); len(hash) > 0 {
				t.Fatalf("%s is %v after all was released", name, hash)
			}
		}
	}
	t.Log(met)
	if alone && met["lone"] < 10*int(seeds) {
		t.Errorf("take_slot.lua has answered too few calls: %v", met)
	}
	for _, what := range []string{"lost", "restored", "conflicts", "kept for an earlier waiter", "denials that write nothing", "waits", "removed", "resets", "grants"} {
		if met[what] < int(seeds) {
			t.Errorf("too few %s: %v", what, met)
		}
	}
}

// checkGrant fails if more slots of a key are held than n.
func (m *slotModel) checkGrant(t *testing.T, name string, n int64) {
	t.Helper()
	sum := int64(0)
	for _, h := range m.keys[name].holds {
		if h.ends > m.now {
			sum += h.count
		}
	}
	if sum > n {
		t.Fatalf("%d slots of %d are held after a grant", sum, n)
	}
}

// The key of slots that holds fields which no script writes fails its calls, and is left as it is.
func TestSlotsWhoseFieldsAreBrokenFailTheirCalls(t *testing.T) {
	s := startServer(t, movableAll(t)...)
	s.set("seconds", 1_780_000_000)
	s.set("microseconds", 0)
	const ends = "1780000010000000"
	far := []string{"9007199254740994", "99999999999999999999", "1e3", "0.5", "nan", "inf", "x", ""}
	bad := map[string][]string{
		"limit":         {"", "x", "absent", "3 at once ", "at once", "-3 at once", "3 at twice", "3"},
		"held_by:other": {"", "1", "1 " + ends, "-1 " + ends + " 1", "1 " + ends + " -1", "1 " + ends + " 1 1"},
		"waits:other":   {"", "1", ends + " " + ends + " 1"},
	}
	for _, number := range far {
		bad["held_by:other"] = append(bad["held_by:other"], number+" "+ends+" 1", "1 "+number+" 1", "1 "+ends+" "+number)
		bad["waits:other"] = append(bad["waits:other"], number+" "+ends, ends+" "+number)
	}
	for field, values := range bad {
		for _, value := range values {
			s.del("k")
			s.hset("k", "limit", "3 at once", "held_by:other", "1 "+ends+" 1")
			if s.hset("k", field, value); value == "absent" {
				s.client.HDel(t.Context(), "k", field)
			}
			before := s.client.Dump(t.Context(), "k").Val()
			for _, need := range []int64{1, 0, bucket.Reset} {
				claim := claim{"own", 2, 0, "fresh", -1}.String()
				if need == bucket.Reset {
					claim = looks
				}
				ch := charge{"k", slotsTerm(3, need, claim)}
				if got, err := askCalls(s, "", []call{{1, []charge{ch}}}); !isNoBucket(err) {
					t.Errorf("%s %q: need %d is answered %v, error %v", field, value, need, got, err)
				}
				got, err := askCalls(s, "", []call{{1, []charge{ch}}, {1, []charge{{"other", slotsTerm(3, 0, looks)}}}})
				if want := []int64{-1, 0, 1, 3}; err != nil || !slices.Equal(got, want) {
					t.Errorf("%s %q: in a batch: %v, %v, want %v", field, value, got, err, want)
				}
			}
			if after := s.client.Dump(t.Context(), "k").Val(); after != before || s.client.TTL(t.Context(), "k").Val() != -1 {
				t.Errorf("%s %q: the key was written: %v", field, value, s.hash("k"))
			}
		}
	}
}

// Scripts of one call leave a key of slots to take.lua, for which the bucket of another kind of limit is full.
func TestScriptsOfOneCallLeaveSlotsToTake(t *testing.T) {
	s := startServer(t, lua.Take, lua.TakeOne, lua.TakeQuota, lua.TakeFew)
	now := s.client.Time(t.Context()).Val().UnixMicro()
	one := charge{"k", term{limit: newLimit(t, 1, time.Hour, 5)}}
	one.need = one.limit.Unit
	for _, charges := range [][]charge{{one}, {one, {"l", one.term}}, {quotaCharge(t, "k", 5, bucket.Month, 1, now)}} {
		s.flush()
		hold := charge{"k", slotsTerm(3, 2, claim{"own", 1, 0, "fresh", -1}.String())}
		if got, err := askTake(s, "", call{1, []charge{hold}}); err != nil || !slices.Equal(got, []int64{1, 1}) {
			t.Fatalf("%v, %v", got, err)
		}
		script, keys, args := aloneArguments("", call{1, charges})
		s.use(script)
		if got, err := s.run(keys, args); !errors.Is(err, redis.Nil) {
			t.Errorf("script %d: %v, %v", script, got, err)
		}
		if got, err := askTake(s, "", call{1, charges}); err != nil || got[0] != 1 || got[1] != charges[0].limit.Capacity-charges[0].need {
			t.Errorf("after script %d: %v, %v", script, got, err)
		}
	}
}

// A block changes no field of a holder, and peek.lua counts their slots.
func TestSlotsUnderABlockArePeeked(t *testing.T) {
	s := startServer(t, lua.Take, lua.Block)
	peek := func(want string) {
		t.Helper()
		got, err := redis.NewScript(lua.Peek).Run(t.Context(), s.client, []string{"k"}, "").Slice()
		if err != nil || len(got) != 10 || fmt.Sprint(got[1]) != want {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
	take := func(holder string, need int64) {
		t.Helper()
		_, err := askTake(s, "", call{1, []charge{{"k", slotsTerm(3, need, claim{holder, 1, 0, "fresh", -1}.String())}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	block := func(span int64) {
		t.Helper()
		s.use(1)
		defer s.use(useTake)
		if _, err := s.run([]string{"k"}, []any{"", span, "by a test"}); err != nil {
			t.Fatal(err)
		}
	}
	peek("<nil>")
	take("a", 2)
	s.hset("k", "held_by:ended", "1 1 1")
	peek("1")
	held := s.hash("k")["held_by:a"]
	for range 2 {
		block(60_000_000)
		peek("1")
		block(0)
		peek("1")
		if after := s.hash("k")["held_by:a"]; after != held {
			t.Errorf("held by a: %q, was %q", after, held)
		}
	}
	s.hset("k", "held_by:a", "2")
	if _, err := redis.NewScript(lua.Peek).Run(t.Context(), s.client, []string{"k"}, "").Slice(); !isNoBucket(err) {
		t.Errorf("broken: error %v", err)
	}
}

// Each write of a holder makes the key last for a lease, by either script.
func TestTheKeyOfSlotsLastsForTheLease(t *testing.T) {
	s := startServer(t, movableAll(t)...)
	for _, script := range []int{useTake, useSlot} {
		s.flush()
		now := int64(1_780_000_000_000_000)
		for i := range int64(9) {
			s.set("seconds", now/1_000_000)
			s.set("microseconds", 0)
			ch := charge{"k", slotsTerm(3, max(0, 1-i), claim{"a", i, min(i, 1), "fresh", -1}.String())}
			keys, args := arguments("", []call{{1, []charge{ch}}})
			if script == useSlot {
				args = []any{ch.limit.Capacity, ch.claim, ch.need}
			}
			s.use(script)
			if got, err := s.run(keys, args); err != nil || got[0]&1 != 1 {
				t.Fatalf("%v, %v", got, err)
			}
			if ends, err := strconv.ParseFloat(s.hash("k")["ends"], 64); err != nil || ends < float64(now+lease) {
				t.Errorf("script %d: at %d the key expires at %.0f, %v", script, now, ends, err)
			}
			now += 10_000_000
		}
	}
}
