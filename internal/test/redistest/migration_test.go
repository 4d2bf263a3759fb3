package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// wantError fails the test unless node answers the command with an error that
// starts with prefix.
func wantError(t *testing.T, node *Server, prefix string, command ...any) {
	t.Helper()
	err := node.Client().Do(t.Context(), command...).Err()
	if err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("%v: %v, want %s", command, err, prefix)
	}
}

func TestMigration(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	client := c.Client()
	const keys = migrationChunk + 50
	key := func(i int) string { return fmt.Sprintf("{tag}%d", i) }
	for i := range keys {
		if err := client.Set(t.Context(), key(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slot := c.Slot("{tag}")
	from := c.Owner(slot)
	to := (from + 1) % len(c.Nodes)
	source, target := c.Nodes[from], c.Nodes[to]
	size := func(node *Server) int { return int(node.Do("CLUSTER", "COUNTKEYSINSLOT", slot).(int64)) }

	m := c.StartMigration(slot, to)
	wantError(t, source, fmt.Sprintf("ASK %d %s", slot, target.Addr()), "GET", "{tag}none")
	if got := size(source); got != keys {
		t.Errorf("the source has %d keys at first, want %d", got, keys)
	}
	if got := m.MoveKeys(1); got != 1 {
		t.Errorf("%d keys were moved, want 1", got)
	}
	if fromSize, toSize := size(source), size(target); fromSize != keys-1 || toSize != 1 {
		t.Errorf("source and target have %d and %d keys, want %d and 1", fromSize, toSize, keys-1)
	}
	if err := client.Set(t.Context(), "{tag}new", "value", 0).Err(); err != nil {
		t.Error(err)
	}
	if got := size(target); got != 2 {
		t.Errorf("the target has %d keys with a new one, want 2", got)
	}
	// Of two keys, the source still has at least one. Before Redis 7 it sends such commands to the target, too.
	err := source.Client().MGet(t.Context(), key(0), key(1), "{tag}new").Err()
	if !redis.HasErrorPrefix(err, "TRYAGAIN") && !redis.HasErrorPrefix(err, "ASK") {
		t.Errorf("some of three keys at the source: %v, want TRYAGAIN or ASK", err)
	}
	asking := target.Client().Pipeline()
	asking.Do(t.Context(), "ASKING")
	both := asking.MGet(t.Context(), "{tag}new", "{tag}none")
	_, _ = asking.Exec(t.Context())
	if !redis.HasErrorPrefix(both.Err(), "TRYAGAIN") {
		t.Errorf("one of two keys at the target: %v, want TRYAGAIN", both.Err())
	}

	m.Finish()
	if got := m.MoveKeys(1); got != 0 {
		t.Errorf("%d keys were moved at the end, want 0", got)
	}
	if got := size(target); got != keys+1 {
		t.Errorf("the target has %d keys at the end, want %d", got, keys+1)
	}
	if got := c.Owner(slot); got != to {
		t.Errorf("owner = %d, want %d", got, to)
	}
	for i, node := range c.Nodes {
		if i != to {
			wantError(t, node, fmt.Sprintf("MOVED %d %s", slot, target.Addr()), "GET", key(0))
		}
	}
	for i := range keys {
		if got, err := client.Get(t.Context(), key(i)).Int(); got != i || err != nil {
			t.Fatalf("%s = %d, %v, want %d", key(i), got, err, i)
		}
	}
}
