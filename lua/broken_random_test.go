package lua_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/testsize"
)

// spoilt are the commands that make keys which hold no bucket, by key.
var spoilt = map[string][]any{
	"spoilt string":         {"SET", "spoilt string", "a string"},
	"spoilt list":           {"RPUSH", "spoilt list", "tokens"},
	"spoilt garbage":        {"HSET", "spoilt garbage", "tokens", "many", "last_refill", "", "limit", "none"},
	"spoilt without a time": {"HSET", "spoilt without a time", "tokens", "1", "limit", "1 1 1"},
	"spoilt without limit":  {"HSET", "spoilt without limit", "tokens", "1", "last_refill", "1"},
	"spoilt without tokens": {"HSET", "spoilt without tokens", "limit", "1 1 1", "last_refill", "1"},
	"spoilt nan":            {"HSET", "spoilt nan", "tokens", "nan", "limit", "1 1 1", "last_refill", "1"},
	"spoilt inf":            {"HSET", "spoilt inf", "tokens", "1", "limit", "1 1 1", "last_refill", "inf"},
	"spoilt range":          {"HSET", "spoilt range", "tokens", "1", "limit", "1 1 1", "last_refill", "9007199254740994"},
	"spoilt unit":           {"HSET", "spoilt unit", "tokens", "1", "limit", "0 1 1", "last_refill", "1"},
	"spoilt block":          {"HSET", "spoilt block", "tokens", "1", "limit", "blocked", "last_refill", "1"},
}

func isSpoilt(ch charge) bool { return strings.HasPrefix(ch.key, "spoilt") }

func isVetoed(ch charge) bool { return isSpoilt(ch) && !ch.shadow }

// A spoiltServer is a server some of whose keys hold no bucket.
type spoiltServer struct {
	server
	client *redis.Client
	vetoed func(charge) bool // the calls of a charge
	fails  bool              // a script of one call that is vetoed
	ask    func(now any, calls []call) ([]int64, error)
}

// askCalls has a server answer calls by the script that it uses.
func askCalls(s server, now any, calls []call) ([]int64, error) {
	keys, args := arguments(now, calls)
	return s.run(keys, args)
}

func TestKeysThatHoldNoBucketDisturbNoOtherCall(t *testing.T) {
	s := startServer(t, movableAll(t)...) // so that no bucket expires meanwhile
	alone := false
	testSpoilt(t, spoiltServer{
		server: s,
		client: s.client,
		vetoed: isVetoed,
		fails:  true,
		ask: func(now any, calls []call) ([]int64, error) {
			if alone = !alone; alone && len(calls) == 1 {
				return askAlone(s, now, calls[0])
			}
			return askCalls(s, now, calls)
		},
	})
}

// testSpoilt sees to it that wherever keys hold no bucket, all calls that they do not veto are as if those were not
// there: the answers, and what Redis keeps.
func testSpoilt(t *testing.T, server spoiltServer) {
	client := server.client
	vetoed, shadows, merged, failed := 0, 0, 0, 0
	for seed := range uint64(testsize.Of(16, 20)) {
		client.FlushDB(t.Context())
		m := newModel(false)
		r := random{rand.New(rand.NewPCG(seed, 11))}
		limits := r.limits()
		now := int64(1_780_000_000_000_000)
		for key, command := range spoilt {
			if err := client.Do(t.Context(), command...).Err(); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
		before := dump(t, client)
		for step := range 60 {
			now = r.move(now, limits[r.IntN(len(limits))])
			calls := r.calls(limits, now)
			for i := range calls {
				r.spoil(&calls[i])
			}
			got, err := server.ask(now, calls)
			if server.fails && len(calls) == 1 && slices.ContainsFunc(calls[0].charges, server.vetoed) {
				if failed++; err == nil {
					t.Fatalf("seed %d, step %d: %+v was answered %v, want an error", seed, step, calls, got)
				}
				m.compare(t, server, now)
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %+v: %v", seed, step, calls, err)
			}
			var answers []answer
			for _, c := range calls {
				answers = append(answers, m.answerSpoilt(c, now, server.vetoed)...)
				switch {
				case slices.ContainsFunc(c.charges, server.vetoed):
					vetoed++
				case slices.ContainsFunc(c.charges, isSpoilt):
					shadows++
				default:
					continue
				}
				if c.count > 1 {
					merged++
				}
			}
			if want := replyOf(answers); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d, step %d: %+v at %d\ngot  %v\nwant %v", seed, step, calls, now, got, want)
			}
			m.compare(t, server, now)
			if after := client.DBSize(t.Context()).Val(); after != int64(len(spoilt)+len(m.buckets)) {
				t.Fatalf("seed %d, step %d: %d keys, want %d and %d", seed, step, after, len(spoilt), len(m.buckets))
			}
		}
		if after := dump(t, client); after != before {
			t.Errorf("seed %d: what held no bucket was written:\n%s\nwas\n%s", seed, after, before)
		}
	}
	t.Logf("%d calls vetoed, %d with a shadow that could not be read, %d of them merged, and %d errors", vetoed, shadows, merged, failed)
	if server.fails && min(shadows, failed) < 10 || min(vetoed, merged) < 10 {
		t.Error("the calls had too few keys that hold no bucket")
	}
}

// spoil lets some charges of c be of keys that hold no bucket.
func (r random) spoil(c *call) {
	if r.IntN(2) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(spoilt))
	c.charges = slices.Clone(c.charges)
	for i, n := range r.Perm(len(names))[:len(c.charges)] {
		if !isQuota(c.charges[i]) && r.IntN(2) == 0 { // a quota reads other fields: see quota_test.go
			c.charges[i].key = names[n]
			c.charges[i].shadow = r.IntN(2) == 0
		}
	}
}

// answerSpoilt answers c, some of whose keys may hold no bucket.
func (m *model) answerSpoilt(c call, now int64, vetoed func(charge) bool) (answers []answer) {
	none := answer{taken: -1}
	whole := call{count: c.count}
	for _, ch := range c.charges {
		if !isSpoilt(ch) {
			whole.charges = append(whole.charges, ch)
		}
	}
	if slices.ContainsFunc(c.charges, vetoed) {
		return slices.Repeat([]answer{none}, len(c.charges))
	}
	rest := m.answer(whole, now)
	for _, ch := range c.charges {
		if isSpoilt(ch) {
			answers = append(answers, none)
			continue
		}
		answers, rest = append(answers, rest[0]), rest[1:]
	}
	return answers
}

// dump returns what the keys that hold no bucket hold.
func dump(t *testing.T, client *redis.Client) string {
	t.Helper()
	var all []string
	for key := range spoilt {
		value, err := client.Dump(t.Context(), key).Result()
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		all = append(all, fmt.Sprintf("%s: %q", key, value))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
