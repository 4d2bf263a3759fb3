package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/memstore"
)

func TestValuesThatHaveEndedAreNotKept(t *testing.T) {
	now := time.UnixMicro(1_795_367_301_000_007)
	s := ratelimit.Must(memstore.New(memstore.Config{Clock: func() time.Time { return now }}))
	defer s.Close()
	for i := range 1000 {
		v := store.Value{Name: fmt.Sprint(i), Until: now.Add(time.Hour)}
		if i%10 == 0 {
			v.Until = time.Time{}
		}
		if _, written, err := s.WriteValue(t.Context(), "s", v); !written || err != nil {
			t.Fatalf("written %t, error %v", written, err)
		}
	}
	now = now.Add(time.Hour)
	if _, err := s.ReadValues(t.Context(), "s", store.Value{Name: "990", Version: 1}); err != nil {
		t.Fatal(err)
	}
	if n := memstore.KeptValues(s, "s"); n != 100 {
		t.Errorf("%d values are kept, want the 100 without an end", n)
	}
}
