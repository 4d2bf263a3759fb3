package storetest_test

import (
	"io"
	"testing"

	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/denialcache"
	"github.com/go-tokenbucket/ratelimit/store/fallback"
	"github.com/go-tokenbucket/ratelimit/store/lease"
	"github.com/go-tokenbucket/ratelimit/store/storetest"
)

func TestDecoratorsReportWhatTheyWrap(t *testing.T) {
	for name, wrap := range map[string]func(inner store.Store) store.Store{
		"denialcache": func(inner store.Store) store.Store { return denialcache.New(inner, denialcache.Config{}) },
		"lease":       func(inner store.Store) store.Store { return lease.New(inner, lease.Config{}) },
		"fallback":    func(inner store.Store) store.Store { return fallback.New(inner, nil, fallback.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.RunDecorator(t, func(t *testing.T, inner store.Store) store.Store {
				s := wrap(inner)
				if c, ok := s.(io.Closer); ok {
					t.Cleanup(func() { c.Close() })
				}
				return s
			})
		})
	}
}
