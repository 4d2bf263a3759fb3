package echoratelimit

import (
	"fmt"
	"sync"
	"testing"
)

// Middleware can set any path. It must not fill the memory.
func TestPatternsAreBounded(t *testing.T) {
	var p patterns
	var setting sync.WaitGroup
	for range 4 {
		setting.Go(func() {
			for i := range maxPaths + 100 {
				path := fmt.Sprint("/", i)
				for range 2 { // once as it is kept, and once as it was
					if got := p.of("POST", path); got != "POST "+path {
						t.Errorf("got %q", got)
					}
				}
			}
		})
	}
	setting.Wait()
	if n := len(*p.byPath.Load()); n != maxPaths {
		t.Errorf("%d paths are kept, want %d", n, maxPaths)
	}
	for method, want := range map[string]string{"TRACE": "TRACE /7", "MADEUP": "/7", "": "/7"} {
		if got := p.of(method, "/7"); got != want {
			t.Errorf("%q: got %q, want %q", method, got, want)
		}
	}
	if got := p.of("GET", unmatched); got != unmatched {
		t.Errorf("got %q", got)
	}
}
