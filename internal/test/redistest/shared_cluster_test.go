package redistest

import (
	"fmt"
	"slices"
	"testing"
)

func TestSharedCluster(t *testing.T) {
	t.Parallel()
	const masters = 1
	var addrs []string
	t.Run("is filled", func(t *testing.T) {
		c := SharedCluster(t, masters)
		addrs = c.Addrs()
		c.Nodes[0].Do("SET", "key", "value")
		if got := endOf(t, func(tb testing.TB) { SharedCluster(tb, masters) }); got != "fatal" {
			t.Errorf("end of another test that uses it meanwhile = %q, want fatal", got)
		}
	})
	t.Run("is empty for the next", func(t *testing.T) {
		c := SharedCluster(t, masters)
		if got := c.Addrs(); !slices.Equal(got, addrs) {
			t.Errorf("addresses = %v, want %v as before", got, addrs)
		}
		if n := c.Nodes[0].Do("DBSIZE"); n != int64(0) {
			t.Errorf("%v keys, want none", n)
		}
	})
}

// A failingTB stands in for a test that is expected to fail.
type failingTB struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (f *failingTB) Cleanup(cleanup func()) { f.cleanups = append(f.cleanups, cleanup) }

func (f *failingTB) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

// end runs the cleanups, which may register others.
func (f *failingTB) end() {
	for n := len(f.cleanups) - 1; n >= 0; n = len(f.cleanups) - 1 {
		cleanup := f.cleanups[n]
		f.cleanups = f.cleanups[:n]
		cleanup()
	}
}

func TestASharedClusterThatWasChangedIsReplaced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *Cluster){
		"a node was killed":     func(c *Cluster) { c.Nodes[1].Kill() },
		"a slot was moved":      func(c *Cluster) { c.StartMigration(slotCount-1, 0).Finish() },
		"a slot is being moved": func(c *Cluster) { c.StartMigration(slotCount-1, 0) },
		"a node was configured": func(c *Cluster) { c.Nodes[1].Do("CONFIG", "SET", "maxmemory", "1gb") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clusters pool
			defer clusters.end()
			test := &failingTB{TB: t}
			changed := clusters.lend(test, 2)
			change(changed)
			test.end()
			if len(test.errors) != 1 {
				t.Errorf("errors %q of the test that changed the cluster, want one", test.errors)
			}
			for _, addr := range changed.Addrs() {
				if accepts(addr) {
					t.Errorf("%s of the changed cluster still runs", addr)
				}
			}
			if len(clusters.clusters) > 0 {
				t.Error("the next test would get the changed cluster")
			}
		})
	}
}

// runs is the tests of a program.
type runs func() int

func (r runs) Run() int { return r() }

func TestSharedClustersEndWithTheProgram(t *testing.T) {
	t.Parallel()
	var clusters pool
	addr := ""
	ran := sharing{runs(func() int {
		test := &failingTB{TB: t}
		addr = clusters.lend(test, 1).Addrs()[0]
		test.end()
		if !accepts(addr) {
			t.Error("the shared cluster ended with its first test")
		}
		return 7
	}), &clusters}
	if got := ran.Run(); got != 7 {
		t.Errorf("the tests returned %d, want 7", got)
	}
	if accepts(addr) {
		t.Error("a shared cluster outlived the tests")
	}
}
