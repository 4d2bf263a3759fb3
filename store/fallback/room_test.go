package fallback_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/internal/testsize"
	"github.com/go-tokenbucket/ratelimit/internal/teststore"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
)

// A spray is a client with many keys, and others whose buckets it would have forgotten.
type spray struct {
	*duo
	spent  store.Charge // of the others' policy
	others int
	minted store.Charge
	made   int
}

// eachSpray runs a test with other keys of one policy, of a slower and of a faster one.
func eachSpray(t *testing.T, others, maxKeys int, test func(t *testing.T, s *spray)) {
	for name, c := range map[string]struct {
		policy string
		rate   int64
		per    time.Duration
		burst  int64
	}{
		"one policy":               {"p", 60, time.Minute, 10},
		"a slow policy":            {"slow", 10, 24 * time.Hour, 10},
		"a slow policy, all spent": {"slow", 1, 24 * time.Hour, 1},
		"a fast policy, all spent": {"fast", 1, 10 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, &spray{
					duo:    newDuo(t, fallback.Config{MaxKeys: maxKeys}),
					spent:  store.Charge{Policy: "p", Limit: teststore.Limit(t, 60, time.Minute, 10), Cost: 10},
					others: others,
					minted: store.Charge{Policy: c.policy, Limit: teststore.Limit(t, c.rate, c.per, c.burst), Cost: 1},
				})
			})
		})
	}
}

// spend empties the others' buckets.
func (s *spray) spend() {
	for i := range s.others {
		s.spent.Key = fmt.Sprint("other", i)
		if ok, _ := s.take(s.spent); !ok {
			s.t.Fatal("refused")
		}
	}
}

// mint takes a token each of some keys that are new.
func (s *spray) mint(keys int) {
	for range keys {
		s.minted.Key = fmt.Sprint("minted", s.made)
		s.made++
		s.take(s.minted)
	}
}

// wantSpent checks that the others' buckets have no tokens, but for those of a few.
func (s *spray) wantSpent(few int) {
	s.t.Helper()
	c, allowed := s.spent, 0
	c.Cost = 1
	for i := range s.others {
		c.Key = fmt.Sprint("other", i)
		if ok, _ := s.take(c); ok {
			allowed++
		}
	}
	if allowed > few {
		s.t.Errorf("%d of %d that were spent had tokens", allowed, s.others)
	}
}

func TestASprayBeforeAnOutageDoesNotRefillBuckets(t *testing.T) {
	maxKeys, others := testsize.Of(2048, 4096), 10
	eachSpray(t, others, maxKeys, func(t *testing.T, s *spray) {
		s.spend()
		s.mint(5 * maxKeys)
		s.fail(teststore.Broken)
		s.wantSpent(1) // three of them may have the same places
	})
}

func TestASprayInAnOutageDoesNotRefillBuckets(t *testing.T) {
	maxKeys, others := testsize.Of(2048, 4096), 10
	eachSpray(t, others, maxKeys, func(t *testing.T, s *spray) {
		s.spend()
		s.fail(teststore.Broken)
		s.mint(2 * maxKeys)
		s.wantSpent(1)
		s.mint(maxKeys)
		s.wantSpent(1)
	})
}

func TestASprayInAnOutageDoesNotMakeTokensThatAreNotChargedAfterIt(t *testing.T) {
	const maxKeys, others = 512, 20
	for _, before := range []int{0, 2 * maxKeys} {
		eachSpray(t, others, maxKeys, func(t *testing.T, s *spray) {
			s.fail(teststore.Broken)
			s.mint(before)
			s.spend()
			s.mint(4 * maxKeys)
			s.comeBack()
			// Without room, the ledger chooses among a few, by chance. Then a spent one may be among those that go, in
			// about one of 10,000 cases.
			forgotten := 0
			for i := range s.others {
				s.spent.Key = fmt.Sprint("other", i)
				if s.peekPrimary(s.spent).Remaining > 1 {
					forgotten++
				}
			}
			if forgotten > s.others/5 {
				t.Errorf("%d of %d that were spent were not charged", forgotten, s.others)
			}
		})
	}
}

// The ledger of an outage and what is known before it are full of spent buckets. What cannot be kept is answered.
func TestMoreSpentBucketsThanThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, fallback.Config{MaxKeys: 1})
		c := store.Charge{Policy: "p", Limit: teststore.Limit(t, 1, time.Hour, 10), Cost: 10}
		for range 2 {
			for i := range 100 {
				c.Key = fmt.Sprint(i)
				d.take(c)
			}
			d.fail(teststore.Broken)
		}
		d.comeBack()
	})
}
