package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/go-tokenbucket/ratelimit/internal/test/redistest"
	"github.com/go-tokenbucket/ratelimit/store/redisstore"
)

// A wrong slot would not be noticed otherwise: a node redirects, and the client follows.
func TestSlotsAreThoseOfACluster(t *testing.T) {
	client := redistest.SharedCluster(t, 1).Client()
	r := rand.New(rand.NewPCG(3, 1))
	const letters = "abcXYZ0189-._~:/@+=,%|#"
	var identities []string
	var slots []*redis.IntCmd
	pipe := client.Pipeline()
	for n := range 500 {
		identity := make([]byte, 1+n%64)
		for i := range identity {
			identity[i] = letters[r.IntN(len(letters))]
		}
		identities = append(identities, string(identity))
		slots = append(slots, pipe.ClusterKeySlot(t.Context(), fmt.Sprintf("ratelimit:{%s}:p", identity)))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, identity := range identities {
		if got, want := redisstore.Slot(identity), uint16(slots[i].Val()); got != want {
			t.Fatalf("slot of %q is %d, want %d", identity, got, want)
		}
	}
}
