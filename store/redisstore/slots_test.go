package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-tokenbucket/ratelimit"
	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// slot returns a charge of one of n slots.
func slot(t testing.TB, key string, n int64) store.Charge {
	t.Helper()
	return store.Charge{Policy: "slots", Key: key, Limit: ratelimit.Must(store.NewConcurrency(n)), Cost: 1}
}

func TestSlots(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	a := ratelimit.Must(redisstore.New(client, redisstore.Config{SlotLease: time.Second}))
	b := ratelimit.Must(redisstore.New(client, redisstore.Config{SlotLease: time.Second}))
	c := slot(t, "k", 3)
	for i := range 3 {
		if st := take(t, a, c); !st.Allowed || st.Remaining != int64(2-i) {
			t.Fatalf("%d: %+v", i, st)
		}
	}
	for range 4 {
		if st := take(t, b, c); st.Allowed {
			t.Fatalf("%+v", st)
		}
		fmt.Println(client.HGetAll(t.Context(), "ratelimit:{k}:slots").Val(), client.PTTL(t.Context(), "ratelimit:{k}:slots").Val())
		time.Sleep(700 * time.Millisecond)
	}
	if st := take(t, a, costs(c, -1)); st.Lost || st.Remaining != 1 {
		t.Fatalf("%+v", st)
	}
	time.Sleep(10 * time.Millisecond)
	if st := take(t, b, c); !st.Allowed {
		t.Fatalf("%+v", st)
	}
	fmt.Println(client.HGetAll(t.Context(), "ratelimit:{k}:slots").Val(), client.PTTL(t.Context(), "ratelimit:{k}:slots").Val())
	fmt.Println(a.Inspect(t.Context(), "slots", "k"))
	fmt.Printf("%+v %+v\n", a.Stats().Slots, b.Stats().Slots)
	take(t, b, costs(c, -1))
	take(t, a, costs(c, -1))
	take(t, a, costs(c, -1))
	time.Sleep(10 * time.Millisecond)
	fmt.Println(client.HGetAll(t.Context(), "ratelimit:{k}:slots").Val(), client.PTTL(t.Context(), "ratelimit:{k}:slots").Val())
	fmt.Printf("%+v %+v\n", a.Stats().Slots, b.Stats().Slots)
}
