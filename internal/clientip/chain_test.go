package clientip

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// chainTest expects the entries want, from right to left and separated by
// spaces, with "invalid" for a false one.
type chainTest struct {
	name  string
	lines []string
	want  string
}

func (tt chainTest) check(t *testing.T, c Chain) {
	t.Helper()
	if got := entries(c); got != tt.want {
		t.Errorf("got %q, want %q", got, tt.want)
	}
}

func entries(c Chain) string {
	var list []string
	for addr, ok := range c.all {
		list = append(list, entryString(addr, ok))
	}
	return strings.Join(list, " ")
}

func entryString(addr netip.Addr, ok bool) string {
	if !ok {
		return "invalid"
	}
	return addr.String()
}

// slowEntries gives what entries does for list elements from left to right, of
// which empty ones are nil.
func slowEntries(elements []*entry) string {
	var list []string
	slices.Reverse(elements)
	for i, e := range elements {
		if i == 64 {
			e = &entry{}
		}
		if e == nil {
			continue
		}
		list = append(list, entryString(e.addr, e.ok))
		if !e.ok {
			break
		}
	}
	return strings.Join(list, " ")
}

func TestThatTheZeroChainIsEmpty(t *testing.T) {
	chainTest{}.check(t, Chain{})
}

func TestThatALoopMayStopEarly(t *testing.T) {
	for _, c := range []Chain{
		XForwardedFor([]string{"192.0.2.1, 192.0.2.2"}),
		Forwarded([]string{"for=192.0.2.1, for=192.0.2.2"}),
	} {
		for addr := range c.all {
			if addr.String() != "192.0.2.2" {
				t.Errorf("got %v first", addr)
			}
			break
		}
	}
}

func TestThatChainsCostNoAllocations(t *testing.T) {
	peer, trusted := netip.MustParseAddr("10.0.0.1"), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	xff := []string{"192.0.2.1", "10.0.0.3,, 10.0.0.2,"}
	forwarded := []string{"for=192.0.2.1", `for=10.0.0.3,, for="10.0.0.2:80",`}
	if n := testing.AllocsPerRun(100, func() {
		FromTrusted(peer, trusted, XForwardedFor(xff))
		FromTrusted(peer, trusted, Forwarded(forwarded))
		FromCount(3, XForwardedFor(xff))
		FromCount(3, Forwarded(forwarded))
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
