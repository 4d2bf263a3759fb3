package lua_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/bucket"
	"github.com/go-tokenbucket/ratelimit/internal/testsize"
	"github.com/go-tokenbucket/ratelimit/lua"
)

// A call is what the script is asked: count identical calls of some charges.
type call struct {
	count   int64
	charges []charge
}

type charge struct {
	key string
	term
}

type term struct {
	limit      bucket.Limit
	need, debt int64
	shadow     bool
	past       bucket.Past // if debt is pastDebt
	block      int64       // or 0; then debt is 0 or below
}

// pastDebt is the debt of a charge that is owed and has a past.
const pastDebt = -2

// arguments returns the KEYS and ARGV of a script of these calls.
func arguments(clock any, calls []call) (keys []string, args []any) {
	numbers := make(map[term]int)
	var terms, runs, form []any // form: of the last run
	for _, c := range calls {
		of := []any{c.count, len(c.charges)}
		for _, ch := range c.charges {
			keys = append(keys, ch.key)
			if numbers[ch.term] == 0 {
				numbers[ch.term] = len(numbers) + 1
				debt, extra := ch.debt, ch.debt == pastDebt || ch.block != 0
				switch {
				case extra && debt < 0:
					debt = -2
				case extra:
					debt = -3
				}
				terms = append(terms, ch.limit.Unit, ch.limit.Refill, ch.limit.Capacity, ch.need, debt, ch.shadow)
				if extra {
					terms = append(terms, ch.past.Credits, ch.past.Outage, ch.block)
				}
			}
			of = append(of, numbers[ch.term])
		}
		if form != nil && slices.Equal(form, of) {
			at := len(runs) - len(of) - 1
			runs[at] = runs[at].(int) + 1
			continue
		}
		form = of
		runs = append(append(runs, 1), of...)
	}
	args = append([]any{clock, len(numbers)}, terms...)
	return keys, append(args, runs...)
}

// model answers calls one by one, as internal/bucket says.
type model struct {
	buckets     map[string]bucket.Bucket
	spares      map[string]bucket.Spare
	shuts       map[string]bucket.Shut
	limits      map[string]bucket.Limit // that they are kept under
	holds       map[string]int64        // until when they are kept for limits before
	doubtful    map[string]bool         // their TTLs are those of another clock
	serverClock bool
	anchored    int
	shut        shutCounts
}

// shutCounts is how often a model has met blocked buckets, and held ones.
type shutCounts struct{ blocks, locks, unlocks, unblocks, refusals, moved, held int }

func (m *model) run(calls []call, now int64) []int64 {
	var all []answer
	for _, c := range calls {
		all = append(all, m.answer(c, now)...)
	}
	return replyOf(all)
}

// An answer is that to a charge: how many of the calls charged the bucket, what it holds then, and for how long it is
// blocked.
type answer struct{ taken, left, blocked int64 }

func (m *model) answer(c call, now int64) []answer {
	answers := make([]answer, len(c.charges))
	for range c.count {
		m.once(c.charges, now, answers)
	}
	for i, ch := range c.charges {
		answers[i].blocked = m.shuts[ch.key].Left(now)
	}
	return answers
}

// replyOf returns the reply of take.lua with these answers.
func replyOf(answers []answer) (reply []int64) {
	for _, a := range answers {
		reply = append(reply, a.taken, a.left)
	}
	for i, a := range answers {
		if a.blocked > 0 {
			reply = append(reply, int64(i+1), a.blocked)
		}
	}
	return reply
}

func newModel(serverClock bool) *model {
	return &model{
		buckets:     make(map[string]bucket.Bucket),
		spares:      make(map[string]bucket.Spare),
		shuts:       make(map[string]bucket.Shut),
		limits:      make(map[string]bucket.Limit),
		holds:       make(map[string]int64),
		doubtful:    make(map[string]bool),
		serverClock: serverClock,
	}
}

func (m *model) once(charges []charge, now int64, answers []answer) {
	found, fits, ok := make([]bucket.Bucket, len(charges)), make([]bool, len(charges)), true
	anchor := make([]func(), len(charges))
	for i, ch := range charges {
		b, known := m.buckets[ch.key]
		if m.serverClock {
			if moved := m.shuts[ch.key].Reanchor(now); moved != m.shuts[ch.key] {
				m.shut.moved++
				m.shuts[ch.key] = moved
			}
		}
		shut := m.shuts[ch.key].Left(now) > 0
		anchor[i] = func() {}
		if known && m.serverClock {
			if anchored := ch.limit.Reanchor(b, now); anchored != b {
				b = anchored
				anchor[i] = func() {
					m.anchored++
					m.moveHold(ch.key, anchored)
					m.buckets[ch.key] = anchored
					if !shut {
						m.doubtful[ch.key] = true
						delete(m.shuts, ch.key)
					}
				}
			}
		}
		found[i] = ch.limit.Advance(b, now)
		debt := max(ch.debt, bucket.AnyDebt)
		fits[i] = ch.limit.Grants(found[i].Tokens, ch.need, debt, 1) == 1
		if shut && fits[i] && !bucket.Passes(ch.need, debt) {
			m.shut.refusals++
			fits[i] = false
		}
		ok = ok && (fits[i] || ch.shadow)
	}
	for i, ch := range charges {
		if ok && fits[i] && ch.block != 0 && ch.need == 0 {
			m.bar(ch, found[i], now)
			answers[i] = answer{taken: answers[i].taken + 1, left: found[i].Tokens}
			continue
		}
		anchor[i]()
		_, known := m.buckets[ch.key]
		shut := m.shuts[ch.key]
		over := shut.Left(now) == 0
		writes := known && (m.limits[ch.key] != ch.limit || m.doubtful[ch.key]) &&
			bucket.Relimits(ch.need, ch.debt) && found[i].Tokens < ch.limit.Capacity
		if ok && fits[i] {
			answers[i].taken++
			need, rest, spared := ch.need, m.spares[ch.key], false
			if ch.debt == pastDebt {
				var more int64
				more, rest = ch.limit.Settle(m.buckets[ch.key], m.spares[ch.key], ch.past, now)
				need, spared = min(need+more, 2*bucket.MaxCredits), more < ch.past.Credits
			}
			after := ch.limit.Charge(found[i].Tokens, need, 1)
			if ch.need == bucket.Reset {
				delete(m.buckets, ch.key)
				delete(m.holds, ch.key)
				delete(m.spares, ch.key)
				delete(m.shuts, ch.key)
			} else if turned := m.lock(ch, after, now); after != found[i].Tokens || spared || turned && ch.need > 0 {
				m.spares[ch.key] = rest
				writes = true
			}
			found[i].Tokens = after
		}
		if writes {
			if turned := m.shuts[ch.key] != shut; over || turned || m.limits[ch.key] != ch.limit {
				m.hold(ch.key, ch.limit, now)
			}
			m.buckets[ch.key], m.limits[ch.key], m.doubtful[ch.key] = found[i], ch.limit, false
			if over && m.shuts[ch.key] == shut {
				delete(m.shuts, ch.key) // as the mark has ended
			}
		}
		answers[i].left = found[i].Tokens
	}
}

// hold puts the bucket of a key under a limit.
func (m *model) hold(key string, l bucket.Limit, now int64) {
	if of, known := m.limits[key]; known && of != l && m.buckets[key] != (bucket.Bucket{}) {
		full := of.Full(m.buckets[key])
		if hold, is := m.holds[key]; !is || hold < full {
			m.holds[key] = full
		}
	}
	m.limits[key] = l
	m.dropHold(key, now)
	if _, is := m.holds[key]; is {
		m.shut.held++
	}
}

// dropHold drops a hold that has ended.
func (m *model) dropHold(key string, now int64) {
	if m.holds[key] <= now {
		delete(m.holds, key)
	}
}

// moveHold moves the hold of a bucket as Reanchor moves its last refill.
func (m *model) moveHold(key string, to bucket.Bucket) {
	if hold, is := m.holds[key]; is {
		m.holds[key] = hold - (m.buckets[key].LastRefill - to.LastRefill)
	}
}

// bar blocks the bucket of ch, or ends its block. A bucket that is there keeps its limit.
func (m *model) bar(ch charge, full bucket.Bucket, now int64) {
	b, known := m.buckets[ch.key]
	switch {
	case known && m.serverClock:
		anchored := m.limits[ch.key].Reanchor(b, now)
		m.moveHold(ch.key, anchored)
		m.buckets[ch.key] = anchored
	case known:
	case ch.block < 0:
		return
	default:
		m.buckets[ch.key], m.limits[ch.key] = full, ch.limit
	}
	m.doubtful[ch.key] = false
	m.dropHold(ch.key, now)
	if s := ch.limit.Shut(m.shuts[ch.key], ch.need, ch.block, full.Tokens, now); s != (bucket.Shut{}) {
		m.shut.blocks++
		m.shuts[ch.key] = s
	} else {
		if _, marked := m.shuts[ch.key]; marked {
			m.shut.unblocks++
		}
		delete(m.shuts, ch.key)
	}
}

// lock locks the bucket of ch, which holds tokens after its charge, or ends its lock. It reports whether that changes
// its block.
func (m *model) lock(ch charge, tokens, now int64) bool {
	before := m.shuts[ch.key]
	if before.Left(now) == 0 {
		before = bucket.Shut{}
	}
	after := ch.limit.Shut(before, ch.need, ch.block, tokens, now)
	switch {
	case after == before:
		return false
	case after == bucket.Shut{}:
		m.shut.unlocks++
		delete(m.shuts, ch.key)
	default:
		m.shut.locks++
		m.shuts[ch.key] = after
	}
	return true
}

// Many calls in one script, many of which are the same, are answered as each by itself would be, and leave
// the same in Redis: with waits, shadows, refunds, what is owed, changed limits, and clocks that go backwards.
func TestABatchIsAnsweredAsItsCallsOneByOne(t *testing.T) {
	testBatches(t, startServer(t, movable(t, lua.Take)), uint64(testsize.Of(3, 20)))
}

// testBatches compares what a server answers and keeps with a model. The server runs the movable script.
func testBatches(t *testing.T, s server, seeds uint64) {
	for _, serverClock := range []bool{false, true} {
		name := "callers' clock"
		if serverClock {
			name = "server's clock"
		}
		t.Run(name, func(t *testing.T) {
			anchored := 0
			var shut shutCounts
			for seed := range seeds {
				s.flush()
				m := newModel(serverClock)
				r := random{rand.New(rand.NewPCG(seed, 9))}
				limits := r.limits()
				now := int64(1_780_000_000_000_000)
				for step := range 100 {
					now = r.move(now, limits[r.IntN(len(limits))])
					calls := r.calls(limits)
					var clock any = now
					if serverClock {
						clock = ""
						s.set("seconds", now/1_000_000)
						s.set("microseconds", now%1_000_000)
					}
					keys, args := arguments(clock, calls)
					got, err := s.run(keys, args)
					if err != nil {
						t.Fatal(err)
					}
					if want := m.run(calls, now); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("seed %d, step %d: %+v at %d\ngot  %v\nwant %v", seed, step, calls, now, got, want)
					}
					m.compare(t, s, now)
				}
				anchored += m.anchored
				shut.add(m.shut)
			}
			if serverClock && anchored < 5*int(seeds) {
				t.Errorf("only %d buckets were anchored anew", anchored)
			}
			shut.check(t, serverClock, seeds)
		})
	}
}

// movable is a script with a clock and TTLs that a test moves: TIME is read from two keys, and when a key
// would expire is a field of it.
func movable(t *testing.T, script string) string {
	t.Helper()
	time := "{ redis.call('GET', 'seconds'), redis.call('GET', 'microseconds') }"
	changed := strings.NewReplacer(
		"redis.pcall('TIME')", time,
		"call('TIME')", time,
		"call('PEXPIRE', key, expiry)", "call('HSET', key, 'ends', now + 1000 * expiry)",
		"call('PEXPIRE', key, 0)", "call('DEL', key)",
	).Replace(script)
	if strings.Contains(changed, "'TIME'") || strings.Contains(changed, "'PEXPIRE'") {
		t.Fatal("the script calls TIME or PEXPIRE in another way than this test expects")
	}
	return changed
}

// compare checks what the server keeps of each bucket.
func (m *model) compare(t *testing.T, s server, now int64) {
	t.Helper()
	for key, b := range m.buckets {
		hash := s.hash(key)
		if hash["tokens"] != fmt.Sprint(b.Tokens) || hash["unit"] != fmt.Sprint(b.Unit) || hash["last_refill"] != fmt.Sprint(b.LastRefill) {
			t.Fatalf("%s is %v, want %+v", key, hash, b)
		}
		if spare := m.spares[key]; spare != (bucket.Spare{}) && hash["spare"] != fmt.Sprint(spare.Full, spare.Used, spare.At) {
			t.Fatalf("%s is %v, want %+v", key, hash, spare)
		}
		l := m.limits[key]
		text := fmt.Sprint(l.Unit, " ", l.Refill, " ", l.Capacity)
		hold, held := m.holds[key]
		if held {
			text = fmt.Sprint("+", hold, " ", text)
		}
		shut, marked := m.shuts[key]
		switch {
		case marked && shut.Lock:
			text = fmt.Sprint("?", shut.Until, " ", shut.For, " ", text)
		case marked:
			text = fmt.Sprint("!", shut.Until, " ", shut.For, " ", text)
		case m.doubtful[key]:
			text = "~" + text
		}
		if hash["limit"] != text {
			t.Fatalf("%s is %v, want the limit %s", key, hash, text)
		}
		if !m.serverClock {
			continue
		}
		ends, err := strconv.ParseFloat(hash["ends"], 64)
		if err != nil {
			t.Fatal(err)
		}
		if full := b.LastRefill + l.ResetAfter(b.Tokens); int64(ends) < full && (int64(ends) > now || !m.doubtful[key]) {
			t.Fatalf("at %d, %s expires at %.0f and is full at %d only: %v", now, key, ends, full, hash)
		}
		if held && int64(ends) < hold {
			t.Fatalf("at %d, %s expires at %.0f and is held until %d: %v", now, key, ends, hold, hash)
		}
		if int64(ends) < shut.Until {
			t.Fatalf("at %d, %s expires at %.0f and is blocked until %d: %v", now, key, ends, shut.Until, hash)
		}
	}
}

// What carries over to another unit is the same to the credit, also where the product is beyond 2^53.
func TestRescaleIsExact(t *testing.T) {
	testRescale(t, startServer(t, lua.Take, lua.TakeOne))
}

// testRescale compares what a server makes of a bucket's unit. The server runs take.lua and take_one.lua.
func testRescale(t *testing.T, s server) {
	r := rand.New(rand.NewPCG(4, 4))
	const now int64 = 1_780_000_000_000_000
	check := func(tokens, from, to int64) {
		l := bucket.Limit{Unit: to, Refill: 1, Capacity: bucket.MaxCredits / to * to}
		s.hset("k", "tokens", tokens, "unit", from, "last_refill", now, "expires", 0)
		want := l.Advance(bucket.Bucket{Tokens: tokens, Unit: from, LastRefill: now}, now).Tokens
		look := call{1, []charge{{"k", term{limit: l}}}}
		for name, ask := range map[string]func(server, any, call) ([]int64, error){"take.lua": askTake, "take_one.lua": askAlone} {
			if got, err := ask(s, now, look); err != nil || got[1] != want {
				t.Fatalf("%s: %d of unit %d are %v, %v of unit %d, want %d", name, tokens, from, got, err, to, want)
			}
		}
	}
	check(3, 107, 3002399751580331) // a product of 2^53 + 1
	check(-bucket.MaxCredits, 107, 3002399751580331)
	check(-bucket.MaxCredits, 3002399751580331, 107)
	for range testsize.Of(800, 5000) {
		unit := func() int64 { return 1 + r.Int64N(int64(1)<<(30+r.IntN(23))) }
		from, to, tokens := unit(), unit(), r.Int64N(bucket.MaxCredits)
		if r.IntN(2) == 0 {
			tokens %= from
		}
		if r.IntN(3) == 0 {
			tokens = -tokens
		}
		check(tokens, from, to)
	}
}

type random struct{ *rand.Rand }

// limits returns some of any rate, and some that share a unit.
func (r random) limits() (limits []bucket.Limit) {
	add := func(rate int64, per time.Duration, burst int64) {
		if l, err := bucket.NewLimit(rate, per, burst); err == nil {
			limits = append(limits, l)
		}
	}
	for len(limits) < 8 {
		add(1+r.Int64N(1<<r.IntN(32)), time.Duration(1+r.Int64N(1<<r.IntN(53))), 1+r.Int64N(1<<r.IntN(32)))
	}
	for range 4 {
		add(1+r.Int64N(1000), time.Second, 1+r.Int64N(1000))
	}
	add(1, time.Second, 5)
	add(7, time.Second, 100)
	add(13, time.Second, 2)
	return limits
}

func (r random) move(now int64, l bucket.Limit) int64 {
	switch r.IntN(8) {
	case 0, 1:
	case 2:
		now++
	case 3:
		now += r.Int64N(l.Fill()/8 + 2)
	case 4:
		now += r.Int64N(l.Fill() + 2)
	case 5:
		now -= r.Int64N(l.Fill()/2 + 2)
	case 6:
		now += r.Int64N(1_000_000)
	case 7:
		if r.IntN(6) == 0 {
			now -= r.Int64N(3*l.Fill() + 2)
		}
	}
	if now < 1_000_000_000_000_000 || now > 2_000_000_000_000_000 {
		return 1_780_000_000_000_000
	}
	return now
}

func (r random) calls(limits []bucket.Limit) (calls []call) {
	for range 1 + r.IntN(8) {
		c := call{count: []int64{1, 1, 1 + r.Int64N(5), 1 + r.Int64N(60)}[r.IntN(4)]}
		for _, k := range r.Perm(4)[:1+r.IntN(3)] {
			l := limits[(3*k+r.IntN(2))%len(limits)]
			if r.IntN(8) == 0 {
				l = limits[r.IntN(len(limits))]
			}
			burst := l.Capacity / l.Unit
			cost := 1 + r.Int64N(burst/16+1)
			switch r.IntN(8) {
			case 0:
				cost = 0
			case 1:
				cost = -1 - r.Int64N(burst)
			case 2:
				cost = burst + r.Int64N(3) - 1
			case 3:
				cost = []int64{math.MinInt64, math.MaxInt64}[r.IntN(2)]
			}
			var wait int64
			if r.IntN(4) == 0 {
				wait = r.Int64N(2*l.Fill() + 1)
			}
			owed := r.IntN(6) == 0
			if owed && cost > 0 && r.IntN(12) > 0 { // rarely so much that all is refused until the bucket is filled
				cost = 1 + r.Int64N(2*burst)
			} else if owed && cost > 0 && r.IntN(2) == 0 {
				cost = bucket.MaxCredits/l.Unit + r.Int64N(3) - 1
			}
			need, debt := l.Ask(cost, wait, owed)
			var past bucket.Past
			if owed && cost >= 0 && r.IntN(2) == 0 {
				c.count, debt = 1, pastDebt
				past = l.Past(1+r.Int64N([]int64{2, 4 * burst, math.MaxInt64 - 1}[r.IntN(3)]), r.Int64N(4*l.Fill()+1))
			}
			var block int64
			if k == 3 || r.IntN(12) == 0 { // the other buckets are seldom blocked
				block = r.block(l, need, &debt)
			}
			c.charges = append(c.charges, charge{fmt.Sprint("k", k), term{l, need, debt, r.IntN(4) == 0, past, block}})
		}
		for range 1 + r.IntN(3)/2 { // sometimes a run of two
			calls = append(calls, c)
		}
	}
	return calls
}

// block returns a block for a charge of need, or 0. A charge that may wait locks nothing, so its debt is set to 0.
func (r random) block(l bucket.Limit, need int64, debt *int64) int64 {
	longest := []int64{2_000_000, l.Fill() / 8, l.Fill(), 2 * l.Fill()}[r.IntN(4)]
	if r.IntN(32) == 0 {
		longest = bucket.MaxWait
	}
	span := min(1+r.Int64N(longest+1), bucket.MaxWait)
	switch {
	case need < 0 || need == 0 && *debt < 0 || r.IntN(4) == 0:
		return 0
	case need > 0:
		*debt = min(*debt, 0)
		return span
	case r.IntN(3) > 0:
		*debt = 0
		return -1
	default:
		*debt = 0
		return span
	}
}

func (c *shutCounts) add(d shutCounts) {
	c.blocks += d.blocks
	c.locks += d.locks
	c.unlocks += d.unlocks
	c.unblocks += d.unblocks
	c.refusals += d.refusals
	c.moved += d.moved
	c.held += d.held
}

// check fails a test that has met too few blocked buckets in this many runs.
func (c shutCounts) check(t *testing.T, serverClock bool, runs uint64) {
	t.Helper()
	t.Logf("%+v", c)
	few := min(c.blocks, c.locks, c.unblocks, c.refusals) < 3*int(runs)/2 || c.unlocks < int(runs)/2
	if few || serverClock && c.moved < int(runs) {
		t.Errorf("too few blocked buckets: %+v", c)
	}
	if c.held < 10*int(runs) {
		t.Errorf("too few held buckets: %+v", c)
	}
}
