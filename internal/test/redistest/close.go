package redistest

import (
	"io"
	"testing"
)

// closeOnCleanup closes client when the test ends. It ignores the error because
// the test may have closed the client already.
func closeOnCleanup(tb testing.TB, client io.Closer) {
	tb.Cleanup(func() { _ = client.Close() })
}
