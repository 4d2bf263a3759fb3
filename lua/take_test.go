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
	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
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
	lock       int64 // or 0

	from, until int64  // the period of a quota
	claim       string // of slots: what stands in place of refill
}

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
				if ch.limit.IsConcurrency() {
					terms = append(terms, "at once", ch.claim)
				} else if ch.limit.IsQuota() {
					terms = append(terms, ch.limit.Period.String(), fmt.Sprint(ch.from, " ", ch.until))
				} else {
					terms = append(terms, ch.limit.Unit, ch.limit.Refill)
				}
				terms = append(terms, ch.limit.Capacity, ch.need, ch.debt, ch.shadow, ch.lock)
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
	limits      map[string]bucket.Limit // that they are kept under
	blocks      map[string]bucket.Block // also ended ones, until the key is written
	ends        map[string]float64      // when keys expired at the last look
	serverClock bool
	met         map[string]int // how often it has met what is rare
}

func newModel(serverClock bool) *model {
	return &model{
		buckets:     make(map[string]bucket.Bucket),
		limits:      make(map[string]bucket.Limit),
		blocks:      make(map[string]bucket.Block),
		ends:        make(map[string]float64),
		met:         make(map[string]int),
		serverClock: serverClock,
	}
}

func (m *model) run(calls []call, now int64) []int64 {
	var all []answer
	for _, c := range calls {
		all = append(all, m.answer(c, now)...)
	}
	return replyOf(all)
}

// An answer is that to a charge: how many of the calls charged the bucket, what it holds then, for how long it is blocked,
// and for how long the period of a quota goes on.
type answer struct{ taken, left, blocked, rest int64 }

func (m *model) answer(c call, now int64) []answer {
	answers := make([]answer, len(c.charges))
	for range c.count {
		m.once(c.charges, now, answers)
	}
	for i, ch := range c.charges {
		answers[i].blocked = m.blocks[ch.key].Left(now)
		b, _ := m.anchored(ch, now)
		answers[i].rest = ch.limit.Rest(m.advance(ch, b, now), now)
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
		if a.rest > 0 {
			reply = append(reply, -int64(i+1), a.rest)
		}
	}
	return reply
}

// anchored returns the bucket of ch, and whether the clock was set back so far that its last refill was moved.
func (m *model) anchored(ch charge, now int64) (b bucket.Bucket, moved bool) {
	b = m.buckets[ch.key]
	if !m.serverClock {
		return b, false
	}
	anchored := ch.limit.Reanchor(b, now)
	return anchored, anchored != b
}

// advance returns b, the bucket of ch, at the time now.
func (m *model) advance(ch charge, b bucket.Bucket, now int64) bucket.Bucket {
	was := m.limits[ch.key]
	return ch.limit.Advance(&was, b, now)
}

func (m *model) once(charges []charge, now int64, answers []answer) {
	found, fits, ok := make([]bucket.Bucket, len(charges)), make([]bool, len(charges)), true
	moved := make([]bool, len(charges)) // a denial writes the bucket
	for i, ch := range charges {
		_, known := m.buckets[ch.key]
		block := m.blocks[ch.key]
		b, anchored := m.anchored(ch, now)
		if moved[i] = known && m.limits[ch.key] != ch.limit; anchored {
			moved[i] = true
			m.met["anchored"]++
		}
		found[i] = m.advance(ch, b, now)
		fits[i] = ch.limit.Grants(found[i].Tokens, ch.need, ch.debt, 1) == 1
		if block.Left(now) > 0 && fits[i] && !bucket.Passes(ch.need, ch.debt) {
			m.met["refusals"]++
			fits[i] = false
		}
		ok = ok && (fits[i] || ch.shadow)
	}
	for i, ch := range charges {
		b, block := found[i], m.blocks[ch.key]
		writes := moved[i] && bucket.Relimits(ch.need)
		was := m.limits[ch.key]
		spared := ch.limit.Spares(&was, ch.need, ch.debt)
		if ok && fits[i] {
			answers[i].taken++
		}
		switch {
		case spared:
			m.met["spared"]++
			writes = false
		case ok && fits[i]:
			if ch.need == bucket.Reset {
				m.forget(ch.key)
				answers[i].left = ch.limit.Capacity
				continue
			}
			if ch.debt == bucket.NoDebt {
				m.met["settled"]++
			}
			b.Tokens = ch.limit.Charge(b.Tokens, ch.need, ch.debt, 1)
			after := ch.limit.After(block, ch.need, ch.lock, b.Tokens, now)
			switch {
			case after.Left(now) > block.Left(now):
				m.met["locks"]++
				writes = true
			case after.Left(now) < block.Left(now):
				m.met["unlocks"]++
				writes = true
			}
			writes = writes || b.Tokens != found[i].Tokens
			if block = after; writes && block != (bucket.Block{}) {
				m.blocks[ch.key] = block
			}
		}
		if writes {
			m.buckets[ch.key], m.limits[ch.key] = b, ch.limit
			if block.Left(now) == 0 {
				delete(m.blocks, ch.key)
			}
		}
		answers[i].left = b.Tokens
	}
}

func (m *model) forget(key string) {
	delete(m.buckets, key)
	delete(m.limits, key)
	delete(m.blocks, key)
	delete(m.ends, key)
}

// block blocks the bucket of a key, or ends its block if span is 0.
func (m *model) block(key string, span, now int64) {
	_, marked := m.blocks[key]
	_, known := m.buckets[key]
	switch {
	case span > 0:
		m.met["blocks"]++
		m.blocks[key] = bucket.Block{Until: now + span}
	case marked && known:
		m.met["unblocks"]++
		delete(m.blocks, key)
	case marked:
		m.forget(key)
	}
}

// Many calls in one script, many of which are the same, are answered as each by itself would be, and leave
// the same in Redis: with waits, shadows, refunds, what is owed, changed limits, and clocks that go backwards.
func TestABatchIsAnsweredAsItsCallsOneByOne(t *testing.T) {
	testBatches(t, startServer(t, movableAll(t)...), uint64(testsize.Of(3, 20)))
}

// testBatches compares what a server answers and keeps with a model. The server runs the movable scripts.
func testBatches(t *testing.T, s server, seeds uint64) {
	testRandom(t, s, seeds, func(_ random, clock any, calls []call, want func([]call, []int64)) error {
		keys, args := arguments(clock, calls)
		reply, err := s.run(keys, args)
		want(calls, reply)
		return err
	})
}

// testRandom compares what a server answers to random calls, and what it keeps, with a model. ask has it answer calls, in
// parts, each of which is compared by want.
func testRandom(t *testing.T, s server, seeds uint64, ask func(r random, clock any, calls []call, want func(part []call, got []int64)) error) {
	for _, serverClock := range []bool{false, true} {
		name := "callers' clock"
		if serverClock {
			name = "server's clock"
		}
		t.Run(name, func(t *testing.T) {
			met := make(map[string]int)
			for seed := range seeds {
				s.flush()
				m := newModel(serverClock)
				m.met = met
				r := random{rand.New(rand.NewPCG(seed, 9))}
				limits := r.limits()
				now := int64(1_780_000_000_000_000)
				for step := range 100 {
					now = r.move(now, limits[r.IntN(len(limits))])
					var clock any = now
					if serverClock {
						clock = ""
						s.set("seconds", now/1_000_000)
						s.set("microseconds", now%1_000_000)
					}
					if r.IntN(3) == 0 {
						key, span := fmt.Sprint("k", r.IntN(4)), r.span(limits[r.IntN(len(limits))])
						if r.IntN(2) == 0 {
							span = 0
						}
						s.use(useBlock)
						_, err := s.run([]string{key}, []any{clock, span, "by a test"})
						if s.use(useTake); err != nil {
							t.Fatal(err)
						}
						m.block(key, span, now)
					}
					calls := r.calls(limits, now)
					err := ask(r, clock, calls, func(part []call, got []int64) {
						if want := m.run(part, now); fmt.Sprint(got) != fmt.Sprint(want) {
							t.Fatalf("seed %d, step %d: %+v at %d\ngot  %v\nwant %v", seed, step, part, now, got, want)
						}
					})
					if err != nil {
						t.Fatalf("seed %d, step %d: %+v at %d: %v", seed, step, calls, now, err)
					}
					m.compare(t, s, now)
				}
			}
			t.Log(met)
			for what, least := range map[string]uint64{
				"blocks": 3 * seeds / 2, "locks": 3 * seeds / 2, "unblocks": 3 * seeds / 2, "refusals": 3 * seeds / 2, "settled": 3 * seeds / 2, "spared": seeds,
				"unlocks": seeds / 2,
			} {
				if met[what] < int(least) {
					t.Errorf("too few %s: %v", what, met)
				}
			}
			if serverClock && met["anchored"] < 5*int(seeds) {
				t.Errorf("too few clocks that were set back: %v", met)
			}
		})
	}
}

// movable is a script with a clock and TTLs that a test moves: TIME is read from two keys, and when a key
// would expire is a field of it.
func movable(t *testing.T, script string) string {
	t.Helper()
	time := "{ redis.call('GET', 'seconds'), redis.call('GET', 'microseconds') }"
	changed := strings.NewReplacer(
		"redis.call('TIME')", time,
		"call('TIME')", time,
		"redis.call('PTTL', key)", "((redis.call('HMGET', key, 'ends')[1] or now - 1000) - now) / 1000",
		"call('PTTL', key)", "((call('HMGET', key, 'ends')[1] or now - 1000) - now) / 1000",
		"call('PEXPIRE', key, format('%d', ttl))", "call('HSET', key, 'ends', now + 1000 * ttl)",
		"call('PEXPIRE', key, ttl)", "call('HSET', key, 'ends', now + 1000 * ttl)",
		"call('PEXPIRE', key, 0)", "call('DEL', key)",
		"if field == 'limit' and", "if field == 'ends' then elseif field == 'limit' and",
	).Replace(script)
	for _, command := range []string{"TIME", "PTTL", "PEXPIRE"} {
		if strings.Contains(changed, "'"+command+"'") {
			t.Fatalf("the script calls %s in another way than this test expects", command)
		}
	}
	return changed
}

// compare checks what the server keeps of each bucket.
func (m *model) compare(t *testing.T, s server, now int64) {
	t.Helper()
	for _, key := range []string{"k0", "k1", "k2", "k3"} {
		hash := s.hash(key)
		b, known := m.buckets[key]
		block, marked := m.blocks[key]
		l, want := m.limits[key], map[string]string{}
		if known {
			if l.IsQuota() {
				want["used"], want["until"] = fmt.Sprint(l.Capacity-b.Tokens), fmt.Sprint(b.At)
				want["limit"] = fmt.Sprint(l.Capacity, " ", l.Period)
			} else {
				want["tokens"], want["last_refill"] = fmt.Sprint(b.Tokens), fmt.Sprint(b.At)
				want["limit"] = fmt.Sprint(l.Unit, " ", l.Refill, " ", l.Capacity)
			}
		}
		if marked {
			if known {
				want["blocked_limit"] = want["limit"]
			}
			want["limit"], want["blocked_reason"] = "blocked", "by a test"
			if block.Lock {
				want["limit"], want["blocked_reason"] = "locked", ""
			}
			want["blocked_until"] = fmt.Sprint(block.Until)
		}
		for field, value := range want {
			if hash[field] != value {
				t.Fatalf("at %d, %s is %v, want %v", now, key, hash, want)
			}
		}
		if !known && !marked && len(hash) > 0 {
			t.Fatalf("at %d, %s is %v, want none", now, key, hash)
		}
		if !known && !marked || !m.serverClock {
			continue
		}
		ends, err := strconv.ParseFloat(hash["ends"], 64)
		if err != nil {
			t.Fatal(err)
		}
		if full := l.FullAt(b); known && int64(ends) < full {
			t.Fatalf("at %d, %s expires at %.0f and is full at %d only: %v", now, key, ends, full, hash)
		}
		if int64(ends) < block.Until {
			t.Fatalf("at %d, %s expires at %.0f and is blocked until %d: %v", now, key, ends, block.Until, hash)
		}
		if ends < m.ends[key] {
			t.Fatalf("at %d, %s expires at %.0f, which was %.0f before: %v", now, key, ends, m.ends[key], hash)
		}
		m.ends[key] = ends
	}
}

// What carries over to another unit is the same to the credit, also where the product is beyond 2^53.
func TestRescaleIsExact(t *testing.T) {
	testRescale(t, startServer(t, lua.Take))
}

// testRescale compares what a server makes of a bucket's unit. The server runs take.lua.
func testRescale(t *testing.T, s server) {
	r := rand.New(rand.NewPCG(4, 4))
	const now int64 = 1_780_000_000_000_000
	check := func(tokens, from, to int64) {
		l := bucket.Limit{Unit: to, Refill: 1, Capacity: bucket.MaxCredits / to * to}
		s.hset("k", "tokens", tokens, "last_refill", now, "limit", fmt.Sprint(from, " 1 ", from))
		want := l.Advance(&bucket.Limit{Unit: from, Refill: 1}, bucket.Bucket{Tokens: tokens, At: now}, now).Tokens
		if got, err := askTake(s, now, call{1, []charge{{"k", term{limit: l}}}}); err != nil || got[1] != want {
			t.Fatalf("%d of unit %d are %v, %v of unit %d, want %d", tokens, from, got, err, to, want)
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
	for unit := bucket.Hour; unit <= bucket.Month; unit++ {
		for _, zone := range []string{"", "America/Santiago"} {
			p, err := bucket.NewPeriod(unit, zone)
			if err != nil {
				panic(err)
			}
			l, err := bucket.NewQuota(1+r.Int64N(1<<r.IntN(53)), p)
			if err != nil {
				panic(err)
			}
			limits = append(limits, l)
		}
	}
	r.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
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

func (r random) calls(limits []bucket.Limit, now int64) (calls []call) {
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
			settles := owed && cost > 0 && r.IntN(3) == 0 // here also with other charges, which a Store does not send
			need, debt := l.Ask(cost, wait, owed && !settles, settles)
			ch := charge{fmt.Sprint("k", k), term{limit: l, need: need, debt: debt, shadow: r.IntN(4) == 0}}
			if l.IsQuota() {
				ch.from, ch.until = l.Period.Bounds(now)
			}
			if need > 0 && debt != bucket.NoDebt && (k == 3 || r.IntN(12) == 0) { // the other buckets are seldom locked
				ch.lock, ch.debt = r.span(l), min(debt, 0)
			}
			c.charges = append(c.charges, ch)
		}
		for range 1 + r.IntN(3)/2 { // sometimes a run of two
			calls = append(calls, c)
		}
	}
	return calls
}

// span returns the length of a block or lock.
func (r random) span(l bucket.Limit) int64 {
	longest := []int64{2_000_000, l.Fill() / 8, l.Fill(), 2 * l.Fill()}[r.IntN(4)]
	if r.IntN(32) == 0 {
		longest = bucket.MaxWait
	}
	return min(1+r.Int64N(longest+1), bucket.MaxWait)
}
