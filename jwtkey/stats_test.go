package jwtkey_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-tokenbucket/ratelimit/jwtkey"
	"github.com/go-tokenbucket/ratelimit/store"
)

func TestStatsCountTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		cfg := keys.config()
		cfg.CacheSize = 2
		members := must(jwtkey.New(cfg))
		sub := members.Claim("sub")
		want := func(want store.CacheStats) {
			t.Helper()
			want.Max = 2
			if got := members.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		of := func(member string) string { return hs256(valid(`"sub": "` + member + `"`)) }
		want(store.CacheStats{})
		checkKey(t, sub, requestWith(), "") // no token, so nothing to look for
		want(store.CacheStats{})
		checkKey(t, sub, bearer("forged."+of("5")), "")
		checkKey(t, sub, bearer(of("5")), "member:5")
		want(store.CacheStats{Entries: 1, Misses: 2})
		checkKey(t, sub, bearer(of("5")), "member:5")
		if _, err := members.Claims(bearer(of("5"))); err != nil {
			t.Error(err)
		}
		want(store.CacheStats{Entries: 1, Hits: 2, Misses: 2})
		checkKey(t, sub, bearer(of("6")), "member:6")
		checkKey(t, sub, bearer(of("7")), "member:7")
		want(store.CacheStats{Entries: 2, Hits: 2, Misses: 4, Evicted: 1})
		time.Sleep(time.Hour) // what has ended makes room, and was not evicted
		checkKey(t, sub, bearer(of("8")), "member:8")
		want(store.CacheStats{Entries: 2, Hits: 2, Misses: 5, Evicted: 1})
	})
}

func TestExpiredTokensAreNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := keyServer{secret: hmacSecret}
		cfg := keys.config()
		cfg.CacheSize = 2
		members := must(jwtkey.New(cfg))
		sub := members.Claim("sub")
		for i := range 5 {
			member := fmt.Sprint(i)
			checkKey(t, sub, bearer(hs256(valid(`"sub": "`+member+`"`))), "member:"+member)
			time.Sleep(31 * time.Second) // each is remembered for a minute at most
		}
		if s := members.Stats(); s.Evicted != 0 || s.Misses != 5 || s.Entries != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStatsWithoutACache(t *testing.T) {
	keys := keyServer{secret: hmacSecret}
	cfg := keys.config()
	cfg.CacheSize = -1
	members := must(jwtkey.New(cfg))
	checkKey(t, members.Claim("sub"), bearer(hs256(valid(`"sub": "5"`))), "member:5")
	if got := members.Stats(); got != (store.CacheStats{}) {
		t.Errorf("%+v, want none", got)
	}
}

func TestStatsAreExactUnderLoad(t *testing.T) {
	const readers, each = 8, 500
	members := must(jwtkey.New(hs256Config()))
	sub, r := members.Claim("sub"), bearer(hs256(valid(`"sub": "5"`)))
	checkKey(t, sub, r, "member:5")
	var running sync.WaitGroup
	for range readers {
		running.Go(func() {
			for range each {
				if _, err := sub(r); err != nil {
					t.Error(err)
				}
				if s := members.Stats(); s.Misses != 1 || s.Entries != 1 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	running.Wait()
	if s := members.Stats(); s.Hits != readers*each {
		t.Errorf("%+v, want %d hits", s, readers*each)
	}
}
